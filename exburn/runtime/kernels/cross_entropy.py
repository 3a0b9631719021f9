"""Statistics and gradients of long rows of scores, and rows with spare classes.

With 50,000 classes the scores of a batch take gigabytes, and reading them is what takes
the time. `cross_entropy_gpu` has the kernel that reads them.

Replaces: the logarithm of the sum of exponentials in ``label_log_likelihood`` of
``exburn/losses/contract/probabilities.py``, and ``_is_highest`` of
``exburn/metrics/accuracy.py``, which are XLA's. The plain form of the gradient is
``plain`` in `_with_gradient_jvp`, here.

Runs: where `is_long` says so: on NVIDIA GPUs, bfloat16 or float16, from 4,096
classes (a multiple of 8) and 4 million scores on. The gradient comes with the value in
bfloat16 (`gives_gradient`). Spare classes are handled on every device.

Gain: on an H200 value and gradients of 16,384 rows of 50,304 scores take 1.07 ms, XLA's
2.01 (1.87 times, ``benchmarks/kernels.py``); in GPT-2's step 1.1 and 2.5 ms.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.scoped import value_scope
from exburn.runtime.kernels.cross_entropy_gpu import GROUP, read, read_with_gradient
from exburn.runtime.kernels.dispatch import by_rows, device_part, runs_kernels
from exburn.runtime.kernels.memory_bound import memory_bound

_LONG = 4_096  # classes from which it is worth while

_classes: contextvars.ContextVar[int | None] = contextvars.ContextVar(
    "exburn_classes", default=None
)
_factors: contextvars.ContextVar[Any] = contextvars.ContextVar(
    "exburn_row_factors", default=None
)


def spare_after(classes: int | None) -> AbstractContextManager[Any]:
    """In the block, scores have so many classes, and spare columns after them.

    Args:
        classes: ``None`` if all columns are classes.
    """
    return value_scope(_classes, classes)


def without_spare(scores: jax.Array) -> jax.Array:
    """The scores, -inf in spare columns: of no weight in a softmax, and never first.

    Example:
        >>> with spare_after(2):
        ...     print(without_spare(jnp.zeros(3)))
        [  0.   0. -inf]
    """
    classes = _classes.get()
    if classes is None or classes == scores.shape[-1]:
        return scores
    place = jax.lax.broadcasted_iota(jnp.int32, scores.shape, scores.ndim - 1)
    return jnp.where(place < classes, scores, -jnp.inf)


def is_long(scores: Any, axis: int = -1) -> bool:
    """Whether the scores are read by the kernel: many in half precision, on a GPU.

    Example:
        >>> is_long(jnp.ones((8, 10)))
        False
    """
    return (
        axis in (-1, scores.ndim - 1)
        and scores.dtype in (jnp.bfloat16, jnp.float16)
        and scores.shape[-1] % GROUP == 0
        and scores.shape[-1] >= _LONG
        and memory_bound(scores)
        and device_part(scores) is not None
        and runs_kernels()
    )


@jax.custom_jvp
def log_sum_exp(wide: jax.Array, scores: jax.Array, labels: jax.Array) -> jax.Array:
    """The logarithm of each row's sum of exponentials, differentiable by ``wide``.

    Args:
        wide: The scores in float32, ``[…, classes]``, ``without_spare``.
        scores: The same in their own dtype, with anything in the spare columns.
        labels: ``[…]``
    """
    del wide
    return _statistics(scores, labels)[0]


@log_sum_exp.defjvp
def _log_sum_exp_jvp(primals, tangents):
    total = log_sum_exp(*primals)
    share = jnp.exp(primals[0] - total[..., None])
    return total, jnp.sum(share * tangents[0], axis=-1)


def gives_gradient(scores: Any) -> bool:
    """Whether the kernel computes the gradient of a cross-entropy as well.

    It is of the order of 1 / rows, which float16 cannot hold.
    """
    return is_long(scores) and scores.dtype == jnp.bfloat16


def row_factors(
    reduce: Callable[[jax.Array], jax.Array], shape: tuple[int, ...]
) -> jax.Array:
    """The weight of each row's value in a reduction.

    Args:
        reduce: From values of ``shape`` to a number, linear in them.

    Example:
        >>> row_factors(jnp.mean, (4,)).tolist()
        [0.25, 0.25, 0.25, 0.25]
    """
    return jax.lax.stop_gradient(jax.grad(reduce)(jnp.zeros(shape, jnp.float32)))


def reduced_cross_entropy(
    scores: jax.Array, labels: jax.Array, reduce: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    """A reduction of the rows' cross-entropies, its gradient computed with the value.

    Args:
        scores: ``[…, columns]``, of which ``gives_gradient`` is true.
        labels: ``[…]``; one that is no class gives NaN.
        reduce: As for ``row_factors``.
    """
    factors = row_factors(reduce, labels.shape)
    values, carrier = _row_losses(scores, labels, factors)
    return reduce(jax.lax.stop_gradient(values)) + carrier


@jax.custom_jvp
def _row_losses(scores, labels, factors) -> tuple[jax.Array, jax.Array]:
    """The rows' cross-entropies, without a derivative, and a zero with that of their
    sum, times the factors."""
    del factors
    return _losses(scores, labels, _statistics(scores, labels)[0])


@_row_losses.defjvp
def _row_losses_jvp(primals, tangents):
    scores, labels, _ = primals
    total, _, gradient = _with_gradient(*primals)
    values, zero = _losses(scores, labels, total)
    slope = jnp.sum(gradient.astype(jnp.float32) * tangents[0].astype(jnp.float32))
    return (values, zero), (jnp.zeros_like(values), slope)


def _losses(scores, labels, total):
    classes = _classes.get() or scores.shape[-1]
    mine = jnp.clip(labels, 0, classes - 1)[..., None]
    own = jnp.take_along_axis(scores, mine, axis=-1)[..., 0].astype(jnp.float32)
    values = jnp.where((labels >= 0) & (labels < classes), total - own, jnp.nan)
    return values, jnp.zeros((), jnp.float32)


def weighing_rows(factors: jax.Array | None) -> AbstractContextManager[Any]:
    """In the block, the kernel is called as it was for a loss's gradient.

    XLA runs it once for equal arguments.

    Args:
        factors: The loss's ``row_factors``; ``None`` where there is no gradient.
    """
    return value_scope(_factors, factors)


def ranks_first(scores: jax.Array, labels: jax.Array) -> jax.Array:
    """Whether the label's score is the highest, and the first of these, ``[…]``."""
    factors = _factors.get()
    if factors is None or factors.shape != labels.shape or not gives_gradient(scores):
        return _statistics(scores, labels)[1]
    return _with_gradient(scores, labels, factors)[1]


def _statistics(scores: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The logarithm of each row's total, and whether its label ranks first."""
    rows, targets, classes = _rows(scores, labels)
    total, first = by_rows(read, (0, 0), (0, 0), classes=classes)(rows, targets)
    return _shape_losses(total, first, labels, classes)


@jax.custom_jvp
def _with_gradient(scores, labels, factors):
    """What ``_statistics`` gives, and the gradient that ``_row_losses`` speaks of."""
    rows, targets, classes = _rows(scores, labels)
    run = by_rows(read_with_gradient, (0, 0, 0), (0, 0, 0), classes=classes)
    total, first, slope = run(rows, targets, factors.reshape(-1))
    slope = slope.reshape(scores.shape)
    return *_shape_losses(total, first, labels, classes), slope


@_with_gradient.defjvp
def _with_gradient_jvp(primals, tangents):
    # For gradients of gradients, as XLA does it.
    scores, labels, factors = primals
    outputs = _with_gradient(*primals)

    def plain(scores):
        scores = jnp.where(factors[..., None] == 0, 0, scores)  # of any value
        share = jax.nn.softmax(without_spare(scores.astype(jnp.float32)))
        place = jax.lax.broadcasted_iota(jnp.int32, scores.shape, scores.ndim - 1)
        slope = share - (place == labels[..., None])
        return (slope * factors[..., None]).astype(scores.dtype)

    slope = jax.jvp(plain, (scores,), (tangents[0],))[1]
    zero = jnp.zeros_like(outputs[0])
    return outputs, (zero, jnp.zeros(outputs[1].shape, jax.dtypes.float0), slope)


def _rows(scores, labels):
    columns = scores.shape[-1]
    classes = _classes.get() or columns
    targets = jnp.clip(labels, 0, classes - 1).astype(jnp.int32).reshape(-1)
    return scores.reshape(-1, columns), targets, classes


def _shape_losses(total, first, labels, classes):
    total, first = total.reshape(labels.shape), first.reshape(labels.shape)
    valid = (labels >= 0) & (labels < classes) & ~jnp.isnan(total)
    return total, (first > 0) & valid
