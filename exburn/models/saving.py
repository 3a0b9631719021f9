"""A model in files: what of it is written, and compiled again."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax

from exburn import losses, metrics
from exburn.callbacks import WarmUp
from exburn.core import registry
from exburn.core.batch_independence import is_foreign
from exburn.errors import ArgumentError, FileFormatError, warn
from exburn.losses import Loss
from exburn.losses.catalogue import as_loss
from exburn.metrics import Metric
from exburn.models.network import Network
from exburn.models.private_training import (
    privacy_config,
    privacy_from_config,
    spending_of,
)
from exburn.models.session import require_hook
from exburn.module.building import require_built
from exburn.module.layer import Layer
from exburn.runtime.device import device_of
from exburn.text import Tokenizer


def save(
    self: Network,
    filepath: Any,
    overwrite: bool = True,
    zipped: bool | None = None,
    *,
    include_optimizer: bool = True,
    max_shard_size: Any = "5GB",
) -> None:
    """Writes the whole model to one file; ``exburn.load_model`` reads it.

    Args:
        filepath: The file; ``.exburn`` is appended if it has no suffix. Whatever
            the suffix is, ``.keras`` too, it is ExBurn's own format.
        overwrite: Whether an existing file may be replaced.
        zipped: For Keras code; a model is one file, so ``False`` is an error.
        include_optimizer: Whether the optimizer's state is written.
        max_shard_size: Size from which on the tensors go into several files.

    Raises:
        NotBuiltError: The model has no weights yet.
        ArgumentError: A part cannot be described, or the file may not be replaced.
        SaveError: The disk is full, or writing is not permitted.
    """
    from exburn.saving import save_model

    save_model(
        self,
        filepath,
        overwrite,
        zipped,
        include_optimizer=include_optimizer,
        max_shard_size=max_shard_size,
    )


def to_json(self: Network, **options: Any) -> str:
    """The architecture as JSON; ``exburn.models.model_from_json`` reads it.

    Args:
        **options: Of ``json.dumps``, such as ``indent=2``.

    Raises:
        ArgumentError: A part of it cannot be described (see ``exburn.register``).
    """
    from exburn.saving import model_to_json

    return model_to_json(self, **options)


def save_weights(
    self: Network,
    filepath: Any,
    overwrite: bool = True,
    max_shard_size: Any = None,
    *,
    rules: Any = None,
) -> None:
    """Writes the weights to one safetensors file, atomically.

    Args:
        filepath: The file; ``.safetensors`` is appended if it has no suffix.
        overwrite: Whether an existing file may be replaced.
        max_shard_size: Size from which on the tensors go into several files.
        rules: What another library calls the weights (``exburn.weights.rules``): then
            the file is as that library's.

    Raises:
        NotBuiltError: The model has no weights yet.
        ArgumentError: The file exists and ``overwrite`` is false, or there is no rule
            for a weight.
        SaveError: The disk is full, or writing is not permitted.
    """
    from exburn.saving import save_weights

    require_built(self, "save_weights")
    save_weights(self, filepath, overwrite, max_shard_size=max_shard_size, rules=rules)


def load_weights(
    self: Network,
    filepath: Any,
    skip_mismatch: bool = False,
    *,
    strict: bool | None = None,
    by_name: bool = False,
    rules: Any = None,
) -> Any:
    """Reads weights from a file; all or nothing.

    Args:
        filepath: A file of ``save_weights`` or ``save``, any safetensors file or
            ``.npz`` with the same names, a file of ``torch.save``, or Keras'
            ``.weights.h5``, ``.keras`` or legacy ``.h5``.
        skip_mismatch: Leaves out what is missing, unexpected or of another shape.
        strict: The opposite of ``skip_mismatch``, as other libraries call it.
        by_name: Of a legacy ``.h5``, takes the layers whose names are in the model,
            and leaves the others as they are.
        rules: Which of the file's names is which weight, and in which form
            (``exburn.weights.rules``), for files of other libraries.

    Returns:
        A ``LoadReport``: what was loaded, missing, unexpected or did not fit.

    Raises:
        FileFormatError: The file is damaged or of another model.
        ShapeError: A weight has another shape.
        BusyError: The model is being trained, and this is not in a hook.
    """
    from exburn.saving import load_weights

    require_built(self, "load_weights")
    require_hook(self, "load_weights")
    skips = skip_mismatch if strict is None else not strict
    return load_weights(
        self, filepath, skip_mismatch=skips, by_name=by_name, rules=rules
    )


def get_compile_config(self: Network) -> dict[str, Any] | None:
    """What ``compile`` was given, JSON-able; ``None`` if that is not known.

    A user's class with a ``compile`` of its own overrides this and
    ``compile_from_config``, or is compiled again after loading.

    Raises:
        ArgumentError: A lambda or local function is among it.
    """
    arguments = compile_arguments(self)
    if arguments is None:
        return None
    del arguments["mesh"]  # of this machine's devices
    arguments["optimizer"] = registry.serialize(arguments["optimizer"])
    arguments["loss"] = _each(arguments["loss"], _describe_with(losses.serialize))
    arguments["loss_weights"] = registry.serialize(arguments["loss_weights"])
    for name in ("metrics", "weighted_metrics"):
        arguments[name] = _each(arguments[name], _describe_with(metrics.serialize))
    arguments["warmup"] = warmup_config(arguments["warmup"])
    arguments["device"] = _device_config(arguments["device"])
    if "privacy" in arguments:
        arguments["privacy"] = privacy_config(arguments["privacy"])
    return arguments


def compile_arguments(model: Network) -> dict[str, Any] | None:
    """What compiles an equal model like this one, if that is known."""
    run = model._training_session
    owner = next(cls for cls in type(model).__mro__ if "compile" in vars(cls))
    if run.settings is None or is_foreign(owner):
        return None
    return {
        **run.settings,
        "optimizer": run.optimizer,
        "run_eagerly": run.preparer.eager,
        "steps_per_execution": run.preparer.steps_per_execution,
        "unroll": run.preparer.program_cache.asked_unroll,
        "join_batches": run.preparer.join_batches,
        "remat": run.preparer.program_cache.remat,
        "check_numerics": run.check_numerics,
        "warmup": run.warmup,
        "device": run.device,
        "mesh": run.distribution,
        **_privacy_of(run),
    }


def _privacy_of(run: Any) -> dict[str, Any]:
    """The ``privacy`` of ``compile``, with what was spent since."""
    if run.privacy is None:
        return {}
    return {"privacy": dataclasses.replace(run.privacy, spent=tuple(spending_of(run)))}


def compile_from_config(self: Any, config: Mapping[str, Any]) -> None:
    """Compiles the model as ``get_compile_config`` says.

    Without its device it runs on JAX's default, with a warning.

    Args:
        config: What ``get_compile_config`` returned.

    Raises:
        UnknownNameError: A class or function that it names is not registered.
    """
    arguments = dict(config)
    arguments["optimizer"] = registry.deserialize(config["optimizer"])
    arguments["loss"] = _each(config["loss"], _made_by(as_loss, Loss))
    for name in ("metrics", "weighted_metrics"):
        arguments[name] = _each(config[name], _made_by(metrics.deserialize, Metric))
    if config.get("warmup") is not None:
        arguments["warmup"] = WarmUp(**config["warmup"])
    if config.get("device") is not None:
        arguments["device"] = _device_or_default(config["device"])
    if config.get("privacy") is not None:
        arguments["privacy"] = privacy_from_config(config["privacy"])
    self.compile(**arguments)


def training_state(model: Network) -> dict[str, Any] | None:
    """Seed, numbers of steps and epochs, optimizer state of the training so far."""
    trainer = model._training_session.trainer
    if trainer is None:
        return None
    running = trainer.holder.state
    opt_state = trainer.holder.opt_state if running is None else running.opt_state
    if opt_state is not None:  # layers may have been frozen since
        opt_state = trainer.holder.refit(opt_state, trainer.holder.trained_weights())
    return {
        "seed": int(trainer.holder.seed),
        "step": int(trainer.holder.step if running is None else running.step),
        "epochs": trainer.holder.epochs,
        "opt_state": opt_state,
    }


def set_training_state(model: Network, state: Mapping[str, Any]) -> None:
    holder = model._training_session.holder
    holder.reseed(int(state["seed"]))
    holder.step, holder.epochs = int(state["step"]), int(state.get("epochs", 0))
    holder.opt_state = state.get("opt_state")


def tokenizer_state(model: Network) -> dict[str, Any] | None:
    """What makes the model's tokenizer again."""
    return None if model.tokenizer is None else model.tokenizer.state_dict()


def set_tokenizer_state(model: Network, state: Mapping[str, Any]) -> None:
    model.tokenizer = Tokenizer.from_state(state)


def warmup_config(warmup: WarmUp | None) -> dict[str, Any] | None:
    """The arguments of the warm-up of ``compile``, if there is one."""
    if warmup is None:
        return None
    names = ("target", "steps", "epochs", "initial", "verbose")
    return {name: getattr(warmup, name) for name in names}


def _device_config(device: Any) -> str | None:
    """``"gpu:1"``: the platform, and which of this process' devices of that kind."""
    if device is None:
        return None
    kind = device.platform
    return f"{kind}:{jax.local_devices(backend=kind).index(device)}"


def _device_or_default(name: Any) -> Any:
    if not (isinstance(name, str) and re.fullmatch(r"\w{1,20}:[0-9]{1,4}", name)):
        raise FileFormatError("load_model", f"{name!r} is no device")
    try:
        return device_of(name, "load_model")
    except ArgumentError:
        warn(
            f"The model was compiled for the device {name!r}, which is not here; it "
            f"runs on {jax.local_devices()[0]}. model.to_device(...) moves it.",
        )
        return None


def _each(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Converts what ``compile`` was given for losses or metrics, nested or alone."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        if "class_name" in value and "config" in value:
            return convert(value)
        return {name: _each(one, convert) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_each(one, convert) for one in value]
    return convert(value)


def _made_by(deserialize: Callable[[Any], Any], kind: type) -> Callable[[Any], Any]:
    def convert(described: Any) -> Any:
        value = deserialize(described)
        # A user's own may be any function or callable object; a layer is never meant.
        fits = isinstance(value, kind) or callable(value)
        if not fits or isinstance(value, Layer):
            raise FileFormatError(
                "load_model", f"{type(value).__name__} is no {kind.__name__}"
            )
        return value

    return convert


def _describe_with(serialize: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, Mapping):
            return dict(value)
        name = getattr(value, "__qualname__", "")
        if "<" in name and registry.registered_name(value) is None:
            raise ArgumentError(
                "save",
                f"{name!r} is a lambda or a local function, which no file can name",
                {"received": value},
                hint="Write it as `def` in a module, with @exburn.register above it.",
            )
        return serialize(value)

    return convert
