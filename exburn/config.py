"""Settings of the process: default dtypes, axis order, and what is printed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jax

from exburn.core.checks import check_choice, check_count
from exburn.core.missing_names import refuser
from exburn.core.precision import (
    DTypePolicy,
    PrecisionPolicy,
    get_precision,
    is_float,
    set_precision,
    standardize_dtype,
)
from exburn.errors import ArgumentError, unknown_name
from exburn.errors.boundary import api_boundary, is_filtering

__all__ = [
    "backend",
    "disable_block_loops",
    "disable_convolution_forms",
    "disable_flash_attention",
    "disable_gpu_kernels",
    "disable_head_loss",
    "disable_interactive_logging",
    "disable_traceback_filtering",
    "dtype_policy",
    "enable_block_loops",
    "enable_convolution_forms",
    "enable_flash_attention",
    "enable_gpu_kernels",
    "enable_head_loss",
    "enable_interactive_logging",
    "enable_traceback_filtering",
    "enable_unsafe_deserialization",
    "epsilon",
    "floatx",
    "image_data_format",
    "is_block_loops_enabled",
    "is_convolution_forms_enabled",
    "is_flash_attention_enabled",
    "is_gpu_kernels_enabled",
    "is_head_loss_enabled",
    "is_interactive_logging_enabled",
    "is_nnx_enabled",
    "is_traceback_filtering_enabled",
    "max_epochs",
    "max_steps_per_epoch",
    "set_backend",
    "set_dtype_policy",
    "set_epsilon",
    "set_floatx",
    "set_image_data_format",
    "set_max_epochs",
    "set_max_steps_per_epoch",
]

FORMATS = ("channels_last", "channels_first")

_settings: dict[str, Any] = {
    "floatx": "float32",
    "epsilon": 1e-7,
    "image_data_format": "channels_last",
    "flash_attention": None,
    "gpu_kernels": True,
    "head_loss": True,
    "convolution_forms": True,
    "block_loops": False,
    "interactive_logging": True,
    "max_epochs": None,
    "max_steps_per_epoch": None,
}


@api_boundary
def floatx() -> str:
    """The floating dtype of tensors that are made without one.

    Example:
        >>> floatx()
        'float32'
    """
    return _settings["floatx"]


@api_boundary
def set_floatx(value: Any) -> None:
    """Sets the default floating dtype; layers made from now on follow it.

    A policy that was chosen with :func:`set_dtype_policy` stays.

    Args:
        value: ``"float16"``, ``"bfloat16"``, ``"float32"`` or ``"float64"`` (which JAX
            computes only with ``jax_enable_x64``).

    Raises:
        ArgumentError: It is no floating dtype.

    Example:
        >>> set_floatx("float32")
    """
    name = standardize_dtype(value)
    if not is_float(name):
        raise ArgumentError("set_floatx", f"a floating dtype is needed, not {value!r}")
    if get_precision() == PrecisionPolicy.of(floatx()):
        set_precision(name)
    _settings["floatx"] = name


@api_boundary
def epsilon() -> float:
    """The small number that keeps divisions and logarithms finite.

    Example:
        >>> epsilon()
        1e-07
    """
    return _settings["epsilon"]


@api_boundary
def set_epsilon(value: float) -> None:
    """Sets :func:`epsilon`.

    Args:
        value: The small number.

    Raises:
        ArgumentError: It is not a positive finite number.

    Example:
        >>> set_epsilon(1e-7)
    """
    if not (math.isfinite(value) and value > 0):
        raise ArgumentError("set_epsilon", f"a positive number, received {value!r}")
    _settings["epsilon"] = float(value)


@api_boundary
def image_data_format() -> str:
    """Where images have their channels, unless an argument says otherwise.

    Example:
        >>> image_data_format()
        'channels_last'
    """
    return _settings["image_data_format"]


@api_boundary
def set_image_data_format(data_format: str) -> None:
    """Sets :func:`image_data_format`.

    Args:
        data_format: ``"channels_last"`` or ``"channels_first"``.

    Raises:
        ArgumentError: It is neither.

    Example:
        >>> set_image_data_format("channels_last")
    """
    _settings["image_data_format"] = check_format("set_image_data_format", data_format)


def check_format(op: str, value: Any) -> str:
    """The data format; the default one for ``None``."""
    if value is None:
        return image_data_format()
    return check_choice(op, "data_format", value, FORMATS)


@api_boundary
def dtype_policy() -> DTypePolicy:
    """The policy of layers that are given no ``dtype``.

    Example:
        >>> dtype_policy().name
        'float32'
    """
    return get_precision()


@api_boundary
def set_dtype_policy(policy: Any) -> None:
    """Sets the policy of layers made from now on.

    Args:
        policy: A name such as ``"mixed_bfloat16"``, a dtype, or a ``PrecisionPolicy``.

    Raises:
        UnknownNameError: Nothing has that name.

    Example:
        >>> set_dtype_policy("float32")
    """
    set_precision(policy)


@api_boundary
def backend() -> str:
    """``"jax"``, always.

    Example:
        >>> from exburn import config
        >>> config.backend()
        'jax'
    """
    return "jax"


@api_boundary
def set_backend(backend: str) -> None:
    """Accepts ``"jax"``, for code that chooses its backend.

    Args:
        backend: Its name.

    Raises:
        UnknownNameError: Another backend is asked for.

    Example:
        >>> from exburn import config
        >>> config.set_backend("jax")
    """
    if backend != "jax":
        raise unknown_name("backend", backend, ["jax"], op="set_backend")


@api_boundary
def is_nnx_enabled() -> bool:
    """True: every layer is a ``flax.nnx.Module``.

    Example:
        >>> from exburn import config
        >>> config.is_nnx_enabled()
        True
    """
    return True


@api_boundary
def enable_flash_attention() -> None:
    """Asks for fused attention kernels where they exist (cuDNN).

    Example:
        >>> enable_flash_attention()
        >>> is_flash_attention_enabled()
        True
    """
    _settings["flash_attention"] = True


@api_boundary
def disable_flash_attention() -> None:
    """Makes attention use plain XLA operations.

    Example:
        >>> disable_flash_attention()
        >>> is_flash_attention_enabled()
        False
    """
    _settings["flash_attention"] = False


@api_boundary
def is_flash_attention_enabled() -> bool | None:
    """True or False if someone chose, ``None`` if the machine decides.

    Example:
        >>> is_flash_attention_enabled() in (True, False, None)
        True
    """
    return _settings["flash_attention"]


@api_boundary
def enable_gpu_kernels() -> None:
    """Lets ExBurn's own kernels run for large half-precision arrays: the default.

    Example:
        >>> from exburn import config
        >>> config.enable_gpu_kernels()
        >>> config.is_gpu_kernels_enabled()
        True
    """
    _settings["gpu_kernels"] = True


@api_boundary
def disable_gpu_kernels() -> None:
    """Leaves all arrays to XLA, in programs that are compiled from now on.

    There are kernels for layer normalization, attention's gradients, GELU after a bias,
    cross-entropy over thousands of classes and the loops of small recurrent layers
    (which without them are XLA's loops). The first two know no forward-mode
    derivatives, ``jax.jvp``. Attention's softmax, which XLA makes three kernels of, is
    one then.

    Example:
        >>> disable_gpu_kernels()
        >>> is_gpu_kernels_enabled()
        False
        >>> enable_gpu_kernels()
    """
    _settings["gpu_kernels"] = False


@api_boundary
def is_gpu_kernels_enabled() -> bool:
    """Whether ExBurn's own kernels may run.

    Example:
        >>> from exburn import config
        >>> config.is_gpu_kernels_enabled()
        True
    """
    return _settings["gpu_kernels"]


@api_boundary
def enable_convolution_forms() -> None:
    """Lets convolutions take ExBurn's own forms: the default.

    Example:
        >>> from exburn import config
        >>> config.enable_convolution_forms()
        >>> config.is_convolution_forms_enabled()
        True
    """
    _settings["convolution_forms"] = True


@api_boundary
def disable_convolution_forms() -> None:
    """Leaves all convolutions to XLA, in programs that are compiled from now on.

    Else on a processor pointwise, depthwise, grouped, transposed and three-dimensional
    ones are sums of products, and on a GPU volumes, dilated, transposed and depthwise
    ones have forms or gradients of their own.

    Example:
        >>> disable_convolution_forms()
        >>> is_convolution_forms_enabled()
        False
        >>> enable_convolution_forms()
    """
    _settings["convolution_forms"] = False


@api_boundary
def is_convolution_forms_enabled() -> bool:
    """Whether convolutions may take ExBurn's own forms.

    Example:
        >>> from exburn import config
        >>> config.is_convolution_forms_enabled()
        True
    """
    return _settings["convolution_forms"]


@api_boundary
def enable_head_loss() -> None:
    """Lets ``fit`` and ``evaluate`` compute large losses without all their scores.

    They do so from the start, where the last layer's scores are many and the loss is
    their sparse cross-entropy. What is compiled already stays.

    Example:
        >>> from exburn import config
        >>> config.enable_head_loss()
        >>> config.is_head_loss_enabled()
        True
    """
    _settings["head_loss"] = True


@api_boundary
def disable_head_loss() -> None:
    """Lets programs make all scores of the last layer, as ``predict`` does.

    Call it before ``compile``, to look at scores, or to look for a fault.

    Example:
        >>> from exburn import config
        >>> config.disable_head_loss()
        >>> config.is_head_loss_enabled()
        False
        >>> config.enable_head_loss()
    """
    _settings["head_loss"] = False


@api_boundary
def is_head_loss_enabled() -> bool:
    """Whether large losses are computed without all their scores.

    Example:
        >>> from exburn import config
        >>> config.is_head_loss_enabled()
        True
    """
    return _settings["head_loss"]


@api_boundary
def enable_block_loops() -> None:
    """Lets equal blocks of deep models train as one loop on a processor.

    A `fit` of 24 to 32 attention blocks then starts in about 0.6 of the time, and its
    steps take up to 1.2 times as long: for programs that are changed and started again
    and again. Of programs that are compiled from now on.

    Example:
        >>> enable_block_loops()
        >>> is_block_loops_enabled()
        True
        >>> disable_block_loops()
    """
    _settings["block_loops"] = True


@api_boundary
def disable_block_loops() -> None:
    """Trains each block of a model by itself: the default.

    Example:
        >>> from exburn import config
        >>> config.disable_block_loops()
        >>> config.is_block_loops_enabled()
        False
    """
    _settings["block_loops"] = False


@api_boundary
def is_block_loops_enabled() -> bool:
    """Tells if equal blocks may train as one loop.

    Example:
        >>> from exburn import config
        >>> config.is_block_loops_enabled()
        False
    """
    return _settings["block_loops"]


@api_boundary
def enable_interactive_logging() -> None:
    """Makes progress bars draw themselves anew in place.

    Example:
        >>> from exburn import config
        >>> config.enable_interactive_logging()
        >>> config.is_interactive_logging_enabled()
        True
    """
    _settings["interactive_logging"] = True


@api_boundary
def disable_interactive_logging() -> None:
    """Makes progress go to the ``exburn`` logger, one line at its end.

    Example:
        >>> from exburn import config
        >>> config.disable_interactive_logging()
        >>> config.is_interactive_logging_enabled()
        False
        >>> config.enable_interactive_logging()
    """
    _settings["interactive_logging"] = False


@api_boundary
def is_interactive_logging_enabled() -> bool:
    """Whether progress is drawn, not logged.

    Example:
        >>> from exburn import config
        >>> config.is_interactive_logging_enabled()
        True
    """
    return _settings["interactive_logging"]


@api_boundary
def enable_traceback_filtering() -> None:
    """Shows only the lines of the user's program in tracebacks, as is the default.

    An error that leaves a public function of ExBurn has no frames of ExBurn, JAX and
    flax then, and neither have its causes.

    Example:
        >>> from exburn import config
        >>> config.enable_traceback_filtering()
        >>> config.is_traceback_filtering_enabled()
        True
    """
    jax.config.update("jax_traceback_filtering", "auto")


@api_boundary
def disable_traceback_filtering() -> None:
    """Shows the frames of ExBurn, JAX and flax in tracebacks, too.

    The variable ``EXBURN_TRACEBACK_FILTERING=off``, or ``JAX_TRACEBACK_FILTERING=off``,
    does the same from the start.

    Example:
        >>> disable_traceback_filtering()
        >>> is_traceback_filtering_enabled()
        False
        >>> enable_traceback_filtering()
    """
    jax.config.update("jax_traceback_filtering", "off")


@api_boundary
def is_traceback_filtering_enabled() -> bool:
    """Tells whether tracebacks leave out the frames of ExBurn, JAX and flax.

    Example:
        >>> from exburn import config
        >>> config.is_traceback_filtering_enabled()
        True
    """
    return is_filtering()


@api_boundary
def max_epochs() -> int | None:
    """The most epochs that ``fit`` runs, for quick trials; ``None`` for no limit.

    Example:
        >>> from exburn import config
        >>> config.max_epochs() is None
        True
    """
    return _settings["max_epochs"]


@api_boundary
def set_max_epochs(max_epochs: int | None) -> None:
    """Limits the epochs of every ``fit`` from now on.

    Args:
        max_epochs: The most epochs; ``None`` for no limit.

    Raises:
        ArgumentError: It is neither ``None`` nor an integer >= 1.

    Example:
        >>> from exburn import config
        >>> config.set_max_epochs(2)
        >>> config.max_epochs()
        2
        >>> config.set_max_epochs(None)
    """
    _settings["max_epochs"] = _limit("max_epochs", max_epochs)


@api_boundary
def max_steps_per_epoch() -> int | None:
    """The most batches of an epoch, for quick trials; ``None`` for no limit.

    Example:
        >>> from exburn import config
        >>> config.max_steps_per_epoch() is None
        True
    """
    return _settings["max_steps_per_epoch"]


@api_boundary
def set_max_steps_per_epoch(max_steps_per_epoch: int | None) -> None:
    """Limits the batches of every epoch from now on.

    Args:
        max_steps_per_epoch: The most batches; ``None`` for no limit.

    Raises:
        ArgumentError: It is neither ``None`` nor an integer >= 1.

    Example:
        >>> from exburn import config
        >>> config.set_max_steps_per_epoch(3)
        >>> config.max_steps_per_epoch()
        3
        >>> config.set_max_steps_per_epoch(None)
    """
    limit = _limit("max_steps_per_epoch", max_steps_per_epoch)
    _settings["max_steps_per_epoch"] = limit


def _limit(name: str, value: int | None) -> int | None:
    return None if value is None else check_count(f"set_{name}", name, value)


@api_boundary
def enable_unsafe_deserialization() -> None:
    """Refuses: nothing that runs code is ever read from a file.

    Raises:
        ArgumentError: Always.

    Example:
        >>> try:
        ...     enable_unsafe_deserialization()
        ... except ValueError:
        ...     print("refused")
        refused
    """
    raise ArgumentError(
        "enable_unsafe_deserialization",
        "files never hold code here, so there is no check to switch off",
        hint="Register the function (exburn.register) or pass custom_objects=.",
    )


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
