"""Ops that leave NaN out."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from exburn.core.annotations import Axis, DType, Tensor
from exburn.ops.contract import hashable_axis, op

__all__ = [
    "nanargmax",
    "nanargmin",
    "nancumprod",
    "nancumsum",
    "nanmax",
    "nanmean",
    "nanmedian",
    "nanmin",
    "nanpercentile",
    "nanprod",
    "nanquantile",
    "nanstd",
    "nansum",
    "nanvar",
]


@op
def nanargmax(x: Tensor, axis: int | None = None, keepdims: bool = False) -> jax.Array:
    """The places of the largest entries that are not NaN.

    It is ``jax.numpy.nanargmax``, with Keras' arguments.

    Args:
        axis: The axis; all entries as one row by default.

    Example:
        >>> import numpy as np
        >>> int(nanargmax([np.nan, 1.0, 2.0]))
        2
    """
    return jnp.nanargmax(x, axis=axis, keepdims=keepdims)


@op
def nanargmin(x: Tensor, axis: int | None = None, keepdims: bool = False) -> jax.Array:
    """The places of the smallest entries that are not NaN.

    It is ``jax.numpy.nanargmin``, with Keras' arguments.

    Args:
        axis: The axis; all entries as one row by default.

    Example:
        >>> import numpy as np
        >>> int(nanargmin([np.nan, 1.0, 2.0]))
        1
    """
    return jnp.nanargmin(x, axis=axis, keepdims=keepdims)


@op
def nancumprod(x: Tensor, axis: int | None = None, dtype: DType = None) -> jax.Array:
    """The products of all entries up to each place, NaN as 1.

    It is ``jax.numpy.nancumprod``, with Keras' arguments.

    Args:
        axis: The axis; all entries as one row by default.

    Example:
        >>> import numpy as np
        >>> nancumprod([2.0, np.nan, 3.0]).tolist()
        [2.0, 2.0, 6.0]
    """
    return jnp.nancumprod(x, axis=axis, dtype=dtype)


@op
def nancumsum(x: Tensor, axis: int | None = None, dtype: DType = None) -> jax.Array:
    """The sums of all entries up to each place, NaN as 0.

    It is ``jax.numpy.nancumsum``, with Keras' arguments.

    Args:
        axis: The axis; all entries as one row by default.

    Example:
        >>> import numpy as np
        >>> nancumsum([2.0, np.nan, 3.0]).tolist()
        [2.0, 2.0, 5.0]
    """
    return jnp.nancumsum(x, axis=axis, dtype=dtype)


@op
def nanmax(x: Tensor, axis: Axis = None, keepdims: bool = False) -> jax.Array:
    """The largest entries along axes that are not NaN.

    It is ``jax.numpy.nanmax``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.

    Example:
        >>> import numpy as np
        >>> float(nanmax([1.0, np.nan]))
        1.0
    """
    return jnp.nanmax(x, axis=axis, keepdims=keepdims)


@op
def nanmean(x: Tensor, axis: Axis = None, keepdims: bool = False) -> jax.Array:
    """The means along axes of what is not NaN.

    It is ``jax.numpy.nanmean``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.

    Example:
        >>> import numpy as np
        >>> float(nanmean([1.0, np.nan, 3.0]))
        2.0
    """
    return jnp.nanmean(x, axis=axis, keepdims=keepdims)


@op
def nanmedian(x: Tensor, axis: Axis = None, keepdims: bool = False) -> jax.Array:
    """The medians along axes of what is not NaN.

    It is ``jax.numpy.nanmedian``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.

    Example:
        >>> import numpy as np
        >>> float(nanmedian([1.0, np.nan, 3.0]))
        2.0
    """
    return jnp.nanmedian(x, axis=hashable_axis(axis), keepdims=keepdims)


@op
def nanmin(x: Tensor, axis: Axis = None, keepdims: bool = False) -> jax.Array:
    """The smallest entries along axes that are not NaN.

    It is ``jax.numpy.nanmin``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.

    Example:
        >>> import numpy as np
        >>> float(nanmin([1.0, np.nan]))
        1.0
    """
    return jnp.nanmin(x, axis=axis, keepdims=keepdims)


@op
def nanpercentile(
    x: Tensor,
    q: Tensor,
    axis: Axis = None,
    method: str = "linear",
    keepdims: bool = False,
) -> jax.Array:
    """Percentiles along axes of what is not NaN.

    It is ``jax.numpy.nanpercentile``, with Keras' arguments.

    Args:
        q: One percentage or several, 0 to 100.
        axis: The axes that go away, an integer or several; all of them by default.
        method: ``"linear"``, ``"lower"``, ``"higher"``, ``"midpoint"`` or
            ``"nearest"``: what is between two entries.

    Example:
        >>> import numpy as np
        >>> float(nanpercentile([1.0, np.nan, 3.0], 50))
        2.0
    """
    return jnp.nanpercentile(
        x, q, axis=hashable_axis(axis), method=method, keepdims=keepdims
    )


@op
def nanprod(x: Tensor, axis: Axis = None, keepdims: bool = False) -> jax.Array:
    """The products along axes, NaN as 1.

    It is ``jax.numpy.nanprod``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.

    Example:
        >>> import numpy as np
        >>> float(nanprod([2.0, np.nan, 3.0]))
        6.0
    """
    return jnp.nanprod(x, axis=axis, keepdims=keepdims)


@op
def nanquantile(
    x: Tensor,
    q: Tensor,
    axis: Axis = None,
    method: str = "linear",
    keepdims: bool = False,
) -> jax.Array:
    """Quantiles along axes of what is not NaN.

    It is ``jax.numpy.nanquantile``, with Keras' arguments.

    Args:
        q: One share or several, 0 to 1.
        axis: The axes that go away, an integer or several; all of them by default.
        method: ``"linear"``, ``"lower"``, ``"higher"``, ``"midpoint"`` or
            ``"nearest"``: what is between two entries.

    Example:
        >>> import numpy as np
        >>> float(nanquantile([1.0, np.nan, 3.0], 0.5))
        2.0
    """
    return jnp.nanquantile(
        x, q, axis=hashable_axis(axis), method=method, keepdims=keepdims
    )


@op
def nanstd(x: Tensor, axis: Axis = None, keepdims: bool = False) -> jax.Array:
    """The standard deviations along axes of what is not NaN.

    It is ``jax.numpy.nanstd``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.

    Example:
        >>> import numpy as np
        >>> float(nanstd([1.0, np.nan, 3.0]))
        1.0
    """
    return jnp.nanstd(x, axis=axis, keepdims=keepdims)


@op
def nansum(x: Tensor, axis: Axis = None, keepdims: bool = False) -> jax.Array:
    """The sums along axes, NaN as 0.

    It is ``jax.numpy.nansum``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.

    Example:
        >>> import numpy as np
        >>> float(nansum([2.0, np.nan, 3.0]))
        5.0
    """
    return jnp.nansum(x, axis=axis, keepdims=keepdims)


@op
def nanvar(x: Tensor, axis: Axis = None, keepdims: bool = False) -> jax.Array:
    """The variances along axes of what is not NaN.

    It is ``jax.numpy.nanvar``, with Keras' arguments.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.

    Example:
        >>> import numpy as np
        >>> float(nanvar([1.0, np.nan, 3.0]))
        1.0
    """
    return jnp.nanvar(x, axis=axis, keepdims=keepdims)
