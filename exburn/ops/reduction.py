"""Ops that sum, order, search and count."""

from __future__ import annotations

import builtins
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from exburn.core.checks import check_count
from exburn.errors import ArgumentError
from exburn.ops.binding import bind, op

# fmt: off
__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "argpartition", "argsort",
    "average", "bincount", "count_nonzero", "cumprod", "cumsum", "diff", "digitize",
    "histogram", "isin", "max", "mean", "median", "min", "nanargmax", "nanargmin",
    "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin",
    "nanpercentile", "nanprod", "nanquantile", "nanstd", "nansum", "nanvar",
    "nonzero", "percentile", "prod", "ptp", "quantile", "searchsorted", "sort", "std",
    "sum", "trapezoid", "unique", "var",
]
# fmt: on

_AXIS = "x, /, axis, keepdims"
_EXTREME = "x, /, axis, keepdims, initial"
_QUANTILE = "x, q, /, axis, method, keepdims"

all = bind(jnp.all, _AXIS)
amax = bind(jnp.amax, _EXTREME)
amin = bind(jnp.amin, _EXTREME)
any = bind(jnp.any, _AXIS)
argmax = bind(jnp.argmax, _AXIS)
argmin = bind(jnp.argmin, _AXIS)
average = bind(jnp.average, "x, /, axis, weights")
count_nonzero = bind(jnp.count_nonzero, "x, /, axis")
cumprod = bind(jnp.cumprod, "x, /, axis, dtype")
cumsum = bind(jnp.cumsum, "x, /, axis, dtype")
diff = bind(jnp.diff, "a, /, n, axis")
digitize = bind(jnp.digitize, "x, bins, /")
isin = bind(jnp.isin, "x1, x2, /, assume_unique, invert")
logsumexp = bind(jax.nn.logsumexp, _AXIS)
max = bind(jnp.max, _EXTREME)
mean = bind(jnp.mean, _AXIS)
median = bind(jnp.median, _AXIS)
min = bind(jnp.min, _EXTREME)
nanargmax = bind(jnp.nanargmax, _AXIS)
nanargmin = bind(jnp.nanargmin, _AXIS)
nancumprod = bind(jnp.nancumprod, "x, /, axis, dtype")
nancumsum = bind(jnp.nancumsum, "x, /, axis, dtype")
nanmax = bind(jnp.nanmax, _AXIS)
nanmean = bind(jnp.nanmean, _AXIS)
nanmedian = bind(jnp.nanmedian, _AXIS)
nanmin = bind(jnp.nanmin, _AXIS)
nanpercentile = bind(jnp.nanpercentile, _QUANTILE)
nanprod = bind(jnp.nanprod, _AXIS)
nanquantile = bind(jnp.nanquantile, _QUANTILE)
nanstd = bind(jnp.nanstd, _AXIS)
nansum = bind(jnp.nansum, _AXIS)
nanvar = bind(jnp.nanvar, _AXIS)
nonzero = bind(jnp.nonzero, "x, /")
percentile = bind(jnp.percentile, _QUANTILE)
prod = bind(jnp.prod, "x, /, axis, keepdims, dtype")
ptp = bind(jnp.ptp, _AXIS)
quantile = bind(jnp.quantile, _QUANTILE)
searchsorted = bind(jnp.searchsorted, "sorted_sequence, values, /, side")
sort = bind(jnp.sort, "x, /, axis")
std = bind(jnp.std, _AXIS)
sum = bind(jnp.sum, _AXIS)
trapezoid = bind(jnp.trapezoid, "y, x, /, dx, axis")
var = bind(jnp.var, _AXIS)


@op
def argsort(x, axis: Any = -1):
    """The places of the entries in ascending order along an axis.

    Args:
        x: An array, or one number.
        axis: The axis; None for the array in one row.

    Example:
        >>> argsort([3, 1, 2]).tolist()
        [1, 2, 0]
    """
    return jnp.argsort(x, axis if jnp.ndim(x) else None)


@op
def argpartition(x, kth, axis: Any = -1):
    """The order in which the ``kth`` smallest is at its place, the smaller before it.

    Args:
        x: An array.
        kth: The place, from 0.
        axis: The axis; ``None`` takes the flattened array.

    Example:
        >>> int(argpartition([[30, 10], [40, 20]], 0, axis=None)[0])
        1
    """
    return jnp.argpartition(*((x.ravel(), kth) if axis is None else (x, kth, axis)))


@op
def histogram(x, bins: Any = 10, range=None):
    """How many values lie in each of ``bins`` stretches of equal length.

    Args:
        x: An array.
        bins: Number of stretches.
        range: Where the first begins and the last ends; the least and the largest value
            by default.

    Returns:
        Their counts, and their ``bins + 1`` edges.

    Raises:
        ArgumentError: ``bins`` is no positive integer, or ``range`` does not ascend.

    Example:
        >>> [part.tolist() for part in histogram([0.0, 1.0, 4.0], 2)]
        [[2.0, 1.0], [0.0, 2.0, 4.0]]
    """
    if isinstance(bins, int):
        bins = check_count("histogram", "bins", bins)
    if range is not None and not range[0] <= range[1]:
        raise ArgumentError("histogram", f"range must ascend, received {range}")
    return jnp.histogram(x, bins, range)


@op
def bincount(x, weights=None, minlength: Any = 0, sparse=False):
    """How often each integer from 0 occurs, in every row.

    Args:
        x: Non-negative integers.
        weights: What each of them counts; 1 by default.
        minlength: The least number of bins. Inside compiled code it is their number,
            since the largest value is not known there.
        sparse: Must be false.

    Shape:
        x: [n] → [bins]; [batch, n] → [batch, bins]

    Raises:
        ArgumentError: Another rank, or ``sparse=True``.

    Example:
        >>> bincount([1, 1, 2], minlength=4).tolist()
        [0, 2, 1, 0]
    """
    refuse_sparse("bincount", sparse)
    if x.ndim not in (1, 2):
        raise ArgumentError("bincount", f"x has rank 1 or 2, received rank {x.ndim}")
    length = minlength
    if not isinstance(x, Tracer):
        length = builtins.max(minlength, int(x.max()) + 1 if x.size else 0)
    elif not minlength:
        raise ArgumentError("bincount", "minlength must be given inside compiled code")

    def row(values, weights):
        return jnp.bincount(values, weights, length=length)

    return row(x, weights) if x.ndim == 1 else jax.vmap(row)(x, weights)


@op
def unique(
    x,
    sorted=True,
    return_index=False,
    return_inverse=False,
    return_counts=False,
    axis=None,
    size=None,
    fill_value=None,
):
    """The distinct values, sorted, and on request where and how often they occur.

    Args:
        x: An array.
        sorted: Ignored: the values are always sorted.
        return_index: Also where each is found first.
        return_inverse: Also which of them each element is.
        return_counts: Also how often each occurs.
        axis: Whether to compare the slices along an axis; all elements by default.
        size: Number of values, needed inside compiled code.
        fill_value: What fills up to ``size``; the smallest value by default.

    Example:
        >>> unique([3, 1, 3]).tolist()
        [1, 3]
    """
    return jnp.unique(
        x,
        return_index,
        return_inverse,
        return_counts,
        axis,
        size=size,
        fill_value=fill_value,
    )


def refuse_sparse(op: str, sparse) -> None:
    """ExBurn has no sparse tensors, so nothing may ask for one."""
    if sparse:
        raise ArgumentError(
            op,
            "ExBurn has no sparse tensors",
            hint="Leave sparse=True out: the result is the same, dense.",
        )
