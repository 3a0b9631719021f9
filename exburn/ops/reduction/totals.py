"""Ops that sum up, multiply and average."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from exburn.core.annotations import Axis, DType, Tensor
from exburn.ops.contract import hashable_axis, op

__all__ = [
    "all",
    "amax",
    "amin",
    "any",
    "average",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "diff",
    "max",
    "mean",
    "median",
    "min",
    "prod",
    "ptp",
    "std",
    "sum",
    "trapezoid",
    "var",
]


@op
def all(x: Tensor, axis: Axis = None, keepdims: bool = False) -> jax.Array:
    """Tells whether all entries along axes are true.

    It is ``jax.numpy.all``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.

    Example:
        >>> all([[True, False], [True, True]], axis=1).tolist()
        [False, True]
    """
    return jnp.all(x, axis=axis, keepdims=keepdims)


@op
def amax(
    x: Tensor, axis: Axis = None, keepdims: bool = False, initial: Tensor = None
) -> jax.Array:
    """The largest entries along axes.

    It is ``jax.numpy.amax``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.
        initial: What the result is at least.

    Example:
        >>> amax([[1, 4], [3, 2]], axis=1).tolist()
        [4, 3]
    """
    return jnp.amax(x, axis=axis, keepdims=keepdims, initial=initial)


@op
def amin(
    x: Tensor, axis: Axis = None, keepdims: bool = False, initial: Tensor = None
) -> jax.Array:
    """The smallest entries along axes.

    It is ``jax.numpy.amin``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.
        initial: What the result is at most.

    Example:
        >>> amin([[1, 4], [3, 2]], axis=1).tolist()
        [1, 2]
    """
    return jnp.amin(x, axis=axis, keepdims=keepdims, initial=initial)


@op
def any(x: Tensor, axis: Axis = None, keepdims: bool = False) -> jax.Array:
    """Tells whether an entry along axes is true.

    It is ``jax.numpy.any``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.

    Example:
        >>> any([[True, False], [False, False]], axis=1).tolist()
        [True, False]
    """
    return jnp.any(x, axis=axis, keepdims=keepdims)


@op
def average(x: Tensor, axis: Axis = None, weights: Tensor = None) -> jax.Array:
    """The mean, weighted.

    It is ``jax.numpy.average``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.
        weights: A weight for each entry, or for each place of the axis; equal ones
            by default.

    Example:
        >>> float(average([1.0, 3.0], weights=[3.0, 1.0]))
        1.5
    """
    return jnp.average(x, axis=axis, weights=weights)


@op
def count_nonzero(x: Tensor, axis: Axis = None) -> jax.Array:
    """The number of entries along axes that are not 0.

    It is ``jax.numpy.count_nonzero``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.

    Example:
        >>> int(count_nonzero([0, 1, 2]))
        2
    """
    return jnp.count_nonzero(x, axis=axis)


@op
def cumprod(x: Tensor, axis: int | None = None, dtype: DType = None) -> jax.Array:
    """The products of all entries up to each place.

    It is ``jax.numpy.cumprod``, with Keras' arguments.

    Args:
        axis: The axis; all entries as one row by default.

    Example:
        >>> cumprod([1, 2, 3]).tolist()
        [1, 2, 6]
    """
    return jnp.cumprod(x, axis=axis, dtype=dtype)


@op
def cumsum(x: Tensor, axis: int | None = None, dtype: DType = None) -> jax.Array:
    """The sums of all entries up to each place.

    It is ``jax.numpy.cumsum``, with Keras' arguments.

    Args:
        axis: The axis; all entries as one row by default.

    Example:
        >>> cumsum([1, 2, 3]).tolist()
        [1, 3, 6]
    """
    return jnp.cumsum(x, axis=axis, dtype=dtype)


@op
def diff(a: Tensor, n: int = 1, axis: int = -1) -> jax.Array:
    """The differences between neighbours.

    It is ``jax.numpy.diff``, with Keras' arguments.

    Args:
        a: An array.
        n: How often they are taken.
        axis: The axis along which they are neighbours.

    Example:
        >>> diff([1, 4, 9]).tolist()
        [3, 5]
    """
    return jnp.diff(a, n=n, axis=axis)


@op
def max(
    x: Tensor, axis: Axis = None, keepdims: bool = False, initial: Tensor = None
) -> jax.Array:
    """The largest entries along axes.

    It is ``jax.numpy.max``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.
        initial: What the result is at least.

    Example:
        >>> max([[1, 4], [3, 2]], axis=1).tolist()
        [4, 3]
    """
    return jnp.max(x, axis=axis, keepdims=keepdims, initial=initial)


@op
def mean(x: Tensor, axis: Axis = None, keepdims: bool = False) -> jax.Array:
    """The means along axes.

    It is ``jax.numpy.mean``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.

    Example:
        >>> float(mean([1.0, 2.0, 3.0]))
        2.0
    """
    return jnp.mean(x, axis=axis, keepdims=keepdims)


@op
def median(x: Tensor, axis: Axis = None, keepdims: bool = False) -> jax.Array:
    """The medians along axes.

    It is ``jax.numpy.median``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.

    Example:
        >>> float(median([1.0, 9.0, 2.0]))
        2.0
    """
    return jnp.median(x, axis=hashable_axis(axis), keepdims=keepdims)


@op
def min(
    x: Tensor, axis: Axis = None, keepdims: bool = False, initial: Tensor = None
) -> jax.Array:
    """The smallest entries along axes.

    It is ``jax.numpy.min``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.
        initial: What the result is at most.

    Example:
        >>> min([[1, 4], [3, 2]], axis=1).tolist()
        [1, 2]
    """
    return jnp.min(x, axis=axis, keepdims=keepdims, initial=initial)


@op
def prod(
    x: Tensor, axis: Axis = None, keepdims: bool = False, dtype: DType = None
) -> jax.Array:
    """The products along axes.

    It is ``jax.numpy.prod``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.

    Example:
        >>> int(prod([2, 3]))
        6
    """
    return jnp.prod(x, axis=axis, keepdims=keepdims, dtype=dtype)


@op
def ptp(x: Tensor, axis: Axis = None, keepdims: bool = False) -> jax.Array:
    """The difference between the largest and the smallest entries along axes.

    It is ``jax.numpy.ptp``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.

    Example:
        >>> int(ptp([1, 4, 2]))
        3
    """
    return jnp.ptp(x, axis=axis, keepdims=keepdims)


@op
def std(x: Tensor, axis: Axis = None, keepdims: bool = False) -> jax.Array:
    """The standard deviations along axes.

    It is ``jax.numpy.std``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.

    Example:
        >>> float(std([1.0, 3.0]))
        1.0
    """
    return jnp.std(x, axis=axis, keepdims=keepdims)


@op
def sum(x: Tensor, axis: Axis = None, keepdims: bool = False) -> jax.Array:
    """The sums along axes.

    It is ``jax.numpy.sum``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.

    Example:
        >>> sum([[1, 2], [3, 4]], axis=1).tolist()
        [3, 7]
    """
    return jnp.sum(x, axis=axis, keepdims=keepdims)


@op
def trapezoid(
    y: Tensor, x: Tensor = None, dx: float = 1.0, axis: int = -1
) -> jax.Array:
    """The integral of values along an axis, as a sum of trapezoids.

    It is ``jax.numpy.trapezoid``, with Keras' arguments.

    Args:
        y: The values.
        x: Where they are; at equal distances by default.
        dx: The distance, where there is no ``x``.
        axis: The axis along which they lie.

    Example:
        >>> float(trapezoid([1.0, 2.0, 3.0]))
        4.0
    """
    return jnp.trapezoid(y, x, dx=dx, axis=axis)


@op
def var(x: Tensor, axis: Axis = None, keepdims: bool = False) -> jax.Array:
    """The variances along axes.

    It is ``jax.numpy.var``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.

    Example:
        >>> float(var([1.0, 3.0]))
        1.0
    """
    return jnp.var(x, axis=axis, keepdims=keepdims)
