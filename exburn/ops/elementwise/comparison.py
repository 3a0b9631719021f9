"""Ops that compare, ask of values, and choose by the answer."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from exburn.core.annotations import Tensor
from exburn.ops.contract import op

__all__ = [
    "allclose",
    "equal",
    "greater",
    "greater_equal",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
    "where",
]


@op
def isfinite(x: Tensor) -> jax.Array:
    """Tells whether each entry is neither infinite nor NaN.

    It is ``jax.numpy.isfinite``, with Keras' arguments.

    Example:
        >>> import numpy as np
        >>> isfinite([1.0, np.inf, np.nan]).tolist()
        [True, False, False]
    """
    return jnp.isfinite(x)


@op
def isinf(x: Tensor) -> jax.Array:
    """Tells whether each entry is infinite.

    It is ``jax.numpy.isinf``, with Keras' arguments.

    Example:
        >>> import numpy as np
        >>> isinf([1.0, -np.inf, np.nan]).tolist()
        [False, True, False]
    """
    return jnp.isinf(x)


@op
def isnan(x: Tensor) -> jax.Array:
    """Tells whether each entry is NaN.

    It is ``jax.numpy.isnan``, with Keras' arguments.

    Example:
        >>> import numpy as np
        >>> isnan([1.0, np.inf, np.nan]).tolist()
        [False, False, True]
    """
    return jnp.isnan(x)


@op
def isneginf(x: Tensor) -> jax.Array:
    """Tells whether each entry is negative and infinite.

    It is ``jax.numpy.isneginf``, with Keras' arguments.

    Example:
        >>> import numpy as np
        >>> isneginf([1.0, -np.inf, np.inf]).tolist()
        [False, True, False]
    """
    return jnp.isneginf(x)


@op
def isposinf(x: Tensor) -> jax.Array:
    """Tells whether each entry is positive and infinite.

    It is ``jax.numpy.isposinf``, with Keras' arguments.

    Example:
        >>> import numpy as np
        >>> isposinf([1.0, -np.inf, np.inf]).tolist()
        [False, False, True]
    """
    return jnp.isposinf(x)


@op
def isreal(x: Tensor) -> jax.Array:
    """Tells whether each entry has no imaginary part.

    It is ``jax.numpy.isreal``, with Keras' arguments.

    Example:
        >>> isreal([1 + 2j, 3]).tolist()
        [False, True]
    """
    return jnp.isreal(x)


@op
def logical_not(x: Tensor) -> jax.Array:
    """Tells whether each entry is false, or 0.

    It is ``jax.numpy.logical_not``, with Keras' arguments.

    Example:
        >>> logical_not([True, False]).tolist()
        [False, True]
    """
    return jnp.logical_not(x)


@op
def allclose(
    x1: Tensor,
    x2: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> jax.Array:
    """Tells whether all entries of two arrays are close to each other.

    It is ``jax.numpy.allclose``, with Keras' arguments.

    Args:
        rtol: By how much they may differ, as a share of ``x2``.
        atol: By how much they may differ beside that.
        equal_nan: Whether NaN is close to NaN.

    Example:
        >>> bool(allclose([1.0], [1.0 + 1e-7]))
        True
    """
    return jnp.allclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan)


@op
def equal(x1: Tensor, x2: Tensor) -> jax.Array:
    """Tells whether ``x1 == x2``, entry by entry.

    It is ``jax.numpy.equal``, with Keras' arguments.

    Example:
        >>> equal([1, 2], [1, 3]).tolist()
        [True, False]
    """
    return jnp.equal(x1, x2)


@op
def greater(x1: Tensor, x2: Tensor) -> jax.Array:
    """Tells whether ``x1 > x2``, entry by entry.

    It is ``jax.numpy.greater``, with Keras' arguments.

    Example:
        >>> greater([1, 3], 2).tolist()
        [False, True]
    """
    return jnp.greater(x1, x2)


@op
def greater_equal(x1: Tensor, x2: Tensor) -> jax.Array:
    """Tells whether ``x1 >= x2``, entry by entry.

    It is ``jax.numpy.greater_equal``, with Keras' arguments.

    Example:
        >>> greater_equal([1, 2], 2).tolist()
        [False, True]
    """
    return jnp.greater_equal(x1, x2)


@op
def isclose(
    x1: Tensor,
    x2: Tensor,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
) -> jax.Array:
    """Tells whether entries are close to each other, entry by entry.

    It is ``jax.numpy.isclose``, with Keras' arguments.

    Args:
        rtol: By how much they may differ, as a share of ``x2``.
        atol: By how much they may differ beside that.
        equal_nan: Whether NaN is close to NaN.

    Example:
        >>> isclose([1.0, 2.0], [1.0, 3.0]).tolist()
        [True, False]
    """
    return jnp.isclose(x1, x2, rtol=rtol, atol=atol, equal_nan=equal_nan)


@op
def less(x1: Tensor, x2: Tensor) -> jax.Array:
    """Tells whether ``x1 < x2``, entry by entry.

    It is ``jax.numpy.less``, with Keras' arguments.

    Example:
        >>> less([1, 3], 2).tolist()
        [True, False]
    """
    return jnp.less(x1, x2)


@op
def less_equal(x1: Tensor, x2: Tensor) -> jax.Array:
    """Tells whether ``x1 <= x2``, entry by entry.

    It is ``jax.numpy.less_equal``, with Keras' arguments.

    Example:
        >>> less_equal([2, 3], 2).tolist()
        [True, False]
    """
    return jnp.less_equal(x1, x2)


@op
def logical_and(x1: Tensor, x2: Tensor) -> jax.Array:
    """Tells whether both are true, entry by entry.

    It is ``jax.numpy.logical_and``, with Keras' arguments.

    Example:
        >>> logical_and([True, True], [True, False]).tolist()
        [True, False]
    """
    return jnp.logical_and(x1, x2)


@op
def logical_or(x1: Tensor, x2: Tensor) -> jax.Array:
    """Tells whether one is true, entry by entry.

    It is ``jax.numpy.logical_or``, with Keras' arguments.

    Example:
        >>> logical_or([True, False], [False, False]).tolist()
        [True, False]
    """
    return jnp.logical_or(x1, x2)


@op
def logical_xor(x1: Tensor, x2: Tensor) -> jax.Array:
    """Tells whether exactly one is true, entry by entry.

    It is ``jax.numpy.logical_xor``, with Keras' arguments.

    Example:
        >>> logical_xor([True, True], [True, False]).tolist()
        [False, True]
    """
    return jnp.logical_xor(x1, x2)


@op
def not_equal(x1: Tensor, x2: Tensor) -> jax.Array:
    """Tells whether ``x1 != x2``, entry by entry.

    It is ``jax.numpy.not_equal``, with Keras' arguments.

    Example:
        >>> not_equal([1, 2], [1, 3]).tolist()
        [False, True]
    """
    return jnp.not_equal(x1, x2)


@op
def where(condition: Tensor, x1: Tensor = None, x2: Tensor = None) -> jax.Array:
    """Entries of ``x1`` where a condition is true, and else of ``x2``.

    It is ``jax.numpy.where``, with Keras' arguments.

    Args:
        condition: Booleans; alone, the result is the places where they are true.
        x1: Values.
        x2: Values. The three shapes broadcast.

    Example:
        >>> where([True, False], [1, 2], [3, 4]).tolist()
        [1, 4]
    """
    return jnp.where(condition, x1, x2)
