"""Private names of Keras (``keras.src``) that packages written for it use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from exburn.core import forward_context
from exburn.losses.base import FunctionLoss as LossFunctionWrapper
from exburn.module.symbolic_tensor import Symbol, mask_of

__all__ = [
    "LossFunctionWrapper",
    "get_keras_mask",
    "in_grain_data_pipeline",
    "no_automatic_dependency_tracking",
    "set_keras_mask",
]

F = TypeVar("F", bound=Callable)


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


def in_grain_data_pipeline() -> bool:
    """Whether a worker of Grain runs this; ExBurn's layers make NumPy arrays there.

    Example:
        >>> in_grain_data_pipeline()
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
