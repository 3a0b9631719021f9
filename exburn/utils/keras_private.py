"""Private names of Keras (``keras.src``) that packages written for it use.

Chosen by what published packages import; none needs TensorFlow. What is missing is told
by ``as_keras().report()``.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from exburn import config
from exburn.core import forward_context
from exburn.core.registry import snake_case
from exburn.errors import ArgumentError, printable
from exburn.losses.contract.base import FunctionLoss as LossFunctionWrapper
from exburn.models import Model as Functional
from exburn.module.symbolic_tensor import Symbol, has_symbol, mask_of
from exburn.module.variable import Variable as KerasVariable
from exburn.optimizers import Optimizer as BaseOptimizer
from exburn.random import SeedGenerator

__all__ = [
    "BaseOptimizer",
    "Functional",
    "KerasVariable",
    "LossFunctionWrapper",
    "any_symbolic_tensors",
    "auto_name",
    "canonicalize_axis",
    "count_params",
    "default",
    "draw_seed",
    "filter_traceback",
    "get_global_attribute",
    "get_keras_mask",
    "in_grain_data_pipeline",
    "in_tf_graph",
    "int_shape",
    "is_default",
    "jax_draw_seed",
    "keras_export",
    "make_default_seed",
    "no_automatic_dependency_tracking",
    "print_msg",
    "set_global_attribute",
    "set_keras_mask",
    "standardize_data_format",
    "standardize_padding",
    "standardize_tuple",
    "to_list",
    "to_snake_case",
]

F = TypeVar("F", bound=Callable)

_attributes: dict[str, Any] = {}
_names: dict[str, int] = {}


def get_keras_mask(x: Any) -> Any:
    """The mask that comes with an array or symbol, or ``None``.

    Args:
        x: The array or symbol.

    Example:
        >>> import jax.numpy as jnp
        >>> get_keras_mask(jnp.ones(2)) is None
        True
    """
    return mask_of(x)


def set_keras_mask(x: Any, mask: Any) -> None:
    """Has a mask come with an array or symbol.

    Args:
        x: The array or symbol.
        mask: Its mask: True where an entry counts.

    Example:
        >>> import jax.numpy as jnp
        >>> x, mask = jnp.ones(2), jnp.array([True, False])
        >>> set_keras_mask(x, mask)
        >>> get_keras_mask(x).tolist()
        [True, False]
    """
    ctx = forward_context.current()
    if isinstance(x, Symbol) or ctx is None:
        x._keras_mask = mask
    else:
        ctx.set_mask(x, mask)


def any_symbolic_tensors(args: Any = None, kwargs: Any = None) -> bool:
    """Whether arguments hold a symbol, as of ``Input``.

    Args:
        args, kwargs: Of a call.

    Example:
        >>> import exburn
        >>> any_symbolic_tensors(([exburn.Input((2,))],)), any_symbolic_tensors((1,))
        (True, False)
    """
    return has_symbol((args, kwargs))


def in_grain_data_pipeline() -> bool:
    """Whether a worker of Grain runs this; ExBurn's layers make NumPy arrays there.

    Example:
        >>> in_grain_data_pipeline()
        False
    """
    return False


def in_tf_graph() -> bool:
    """Whether TensorFlow traces this: never, since programs are JAX.

    Example:
        >>> in_tf_graph()
        False
    """
    return False


def no_automatic_dependency_tracking(function: F) -> F:
    """The function: what a layer holds is found in its attributes, not tracked.

    Args:
        function: Any.

    Example:
        >>> no_automatic_dependency_tracking(len) is len
        True
    """
    return function


def filter_traceback(function: F) -> F:
    """The function: tracebacks are not shortened by a wrapper.

    Args:
        function: Any.

    Example:
        >>> filter_traceback(len) is len
        True
    """
    return function


def keras_export(path: Any, package: str = "keras") -> Callable[[F], F]:
    """A decorator that leaves a class or function as it is.

    Args:
        path, package: Where Keras would show it.

    Example:
        >>> keras_export("keras.mine")(len) is len
        True
    """
    return lambda exported: exported


def default(method: F) -> F:
    """Marks a method as one that a class has only if nobody wrote another.

    Args:
        method: The method.

    Example:
        >>> is_default(default(lambda self: None)), is_default(len)
        (True, False)
    """
    method._is_default = True  # type: ignore[attr-defined]
    return method


def is_default(method: Any) -> bool:
    """Whether ``default`` marked a method.

    Args:
        method: The method.

    Example:
        >>> is_default(print)
        False
    """
    return getattr(method, "_is_default", False)


def to_list(x: Any) -> list[Any]:
    """A list of a value, or the list itself.

    Args:
        x: Any.

    Example:
        >>> to_list(1), to_list([1, 2])
        ([1], [1, 2])
    """
    return x if isinstance(x, list) else [x]


def to_snake_case(name: str) -> str:
    """A name in lower case, with underscores.

    Args:
        name: A class's name, say.

    Example:
        >>> to_snake_case("MyLayer")
        'my_layer'
    """
    return snake_case(name)


def auto_name(prefix: str) -> str:
    """A name that was not given out before.

    Args:
        prefix: What it begins with.

    Example:
        >>> auto_name("private_example"), auto_name("private_example")
        ('private_example', 'private_example_1')
    """
    number = _names[prefix] = _names.get(prefix, -1) + 1
    return f"{prefix}_{number}" if number else prefix


def get_global_attribute(
    name: str, default: Any = None, set_to_default: bool = False
) -> Any:
    """What a package has stored under a name.

    Args:
        name: The name.
        default: What is returned where there is nothing.
        set_to_default: Whether the default is stored, too.

    Example:
        >>> set_global_attribute("private_example", 3)
        >>> get_global_attribute("private_example"), get_global_attribute("no", 1)
        (3, 1)
    """
    if name not in _attributes and set_to_default:
        _attributes[name] = default
    return _attributes.get(name, default)


def set_global_attribute(name: str, value: Any) -> None:
    """Stores a value under a name, in this process.

    Args:
        name: The name.
        value: Any.

    Example:
        >>> set_global_attribute("private_example", 3)
    """
    _attributes[name] = value


def canonicalize_axis(axis: int, num_dims: int) -> int:
    """An axis counted from the front.

    Args:
        axis: The axis; a negative one counts from the end.
        num_dims: How many there are.

    Raises:
        ArgumentError: There is no such axis.

    Example:
        >>> canonicalize_axis(-1, 3)
        2
    """
    if not -num_dims <= axis < num_dims:
        raise ArgumentError(
            "canonicalize_axis", f"axis {axis} is out of range for {num_dims} axes"
        )
    return axis % num_dims


def int_shape(x: Any) -> tuple[int | None, ...]:
    """The shape of an array or a symbol, with ``None`` for open sizes.

    Args:
        x: The array or symbol.

    Example:
        >>> int_shape(np.ones((2, 3)))
        (2, 3)
    """
    return tuple(x.shape)


def standardize_tuple(
    value: Any, n: int, name: str, allow_zero: bool = False
) -> tuple[int, ...]:
    """A tuple of ``n`` sizes, of a number or a sequence of them.

    Args:
        value: A whole number, or ``n`` of them.
        n: How many.
        name: The argument, for errors.
        allow_zero: Whether a size may be 0.

    Raises:
        ArgumentError: It is something else, or a size is too small.

    Example:
        >>> standardize_tuple(3, 2, "strides"), standardize_tuple([1, 2], 2, "strides")
        ((3, 3), (1, 2))
    """
    sizes = (value,) * n if isinstance(value, int) else tuple(value or ())
    least = 0 if allow_zero else 1
    if len(sizes) != n or any(not isinstance(s, int) or s < least for s in sizes):
        raise ArgumentError(
            name,
            f"{n} whole numbers from {least} on are needed, received {value!r}",
        )
    return sizes


def standardize_padding(value: str, allow_causal: bool = False) -> str:
    """The name of a padding, in lower case.

    Args:
        value: ``"valid"``, ``"same"`` or ``"causal"``.
        allow_causal: Whether it may be the last of them.

    Raises:
        ArgumentError: It is none of them.

    Example:
        >>> standardize_padding("SAME")
        'same'
    """
    names = ("valid", "same", *(("causal",) if allow_causal else ()))
    if not isinstance(value, str) or value.lower() not in names:
        raise ArgumentError("padding", f"one of {names} is needed, received {value!r}")
    return value.lower()


def standardize_data_format(data_format: str | None) -> str:
    """The order of an image's axes; that of the configuration for ``None``.

    Args:
        data_format: ``"channels_last"``, ``"channels_first"`` or ``None``.

    Raises:
        ArgumentError: It is none of them.

    Example:
        >>> standardize_data_format(None)
        'channels_last'
    """
    value = config.image_data_format() if data_format is None else str(data_format)
    if value.lower() not in ("channels_last", "channels_first"):
        raise ArgumentError("data_format", f"received {data_format!r}")
    return value.lower()


def count_params(weights: Any) -> int:
    """How many numbers weights have.

    Args:
        weights: The weights.

    Example:
        >>> count_params([np.ones((2, 3)), np.ones(3)])
        9
    """
    return sum(int(np.prod(weight.shape)) for weight in weights)


def print_msg(message: str, line_break: bool = True) -> None:
    """Prints a message.

    Args:
        message: The text.
        line_break: Whether the line ends behind it.

    Example:
        >>> print_msg("done")
        done
    """
    print(printable(str(message)), end="\n" if line_break else "", flush=True)


def make_default_seed() -> int:
    """A seed drawn by Python's generator.

    Example:
        >>> 0 <= make_default_seed() < 2**31
        True
    """
    return random.randint(0, 2**31 - 1)


def draw_seed(seed: Any) -> Any:
    """The two words of a key: the next of a generator, or those of a number.

    Args:
        seed: A ``SeedGenerator``, a whole number, or ``None`` for the next seed of the
            process.

    Raises:
        ArgumentError: It is none of these.

    Example:
        >>> draw_seed(3).shape
        (2,)
    """
    if isinstance(seed, SeedGenerator):
        return seed.next()
    return SeedGenerator(seed).next()


def jax_draw_seed(seed: Any) -> Any:
    """A key of JAX of a seed, as ``draw_seed`` takes it.

    Args:
        seed: A ``SeedGenerator``, a whole number, or ``None``.

    Raises:
        ArgumentError: It is none of these.

    Example:
        >>> jax.random.uniform(jax_draw_seed(3)).shape
        ()
    """
    return jax.random.wrap_key_data(draw_seed(seed))
