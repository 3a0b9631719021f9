"""The cross-entropy of a head's scores, without an array of all of them.

The last product of a language model has a score for each token and word: 16,384 tokens
and 128,256 words are 8 GB in float32, their gradient as much again. Here a few rows of
scores at a time become losses, ranks and, in training, the gradients of the rows and of
the weights; then they are gone. Rows that count nothing come last, and whole chunks of
them are left out.

Replaces: the product (``wide_product`` in `padded_matmul`) and the cross-entropy of
its scores (``label_log_likelihood`` of ``exburn/losses/contract/probabilities.py``).

Runs: where `fits` says so: from `SCORES` scores on a device on. On a mesh that divides
more than the batch each device has a part of the classes, and what is of all of them
(the highest score, the sum of exponentials, the label's score, the gradient of the
rows) is put together chunk by chunk; classes that do not divide evenly are filled up.
``config.disable_head_loss()`` leaves it out.

Gain: on one core of an AMD EPYC value and gradients of 1,024 rows of 128
numbers and 32,000 classes take 170 ms and 33 MB, all scores at once 273 ms and 262 MB
(``benchmarks/fused_loss.py``); with 40 % of the rows counted 83 ms.
"""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.sharding import PartitionSpec

from exburn.config import is_head_loss_enabled
from exburn.core.checks import is_known
from exburn.core.scoped import value_scope
from exburn.runtime import portable
from exburn.runtime.kernels.cross_entropy_gpu import GROUP, read_with_gradient
from exburn.runtime.kernels.dispatch import by_rows, device_part, runs_kernels
from exburn.runtime.sharding.current import (
    feature_division,
    feature_parts,
    is_spread,
    row_division,
    row_parts,
)

_scored: contextvars.ContextVar[Any] = contextvars.ContextVar(
    "exburn_scored_rows", default=None
)
_few: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "exburn_few_scores", default=False
)
# Scores on each device from which it runs, and those of a chunk, by platform. On one
# core of an EPYC value and gradients take 1 to 0.28 of the time from 2**22 on, with
# 1 to 4 million in a chunk; below, 0.9 to 1.35. On a GPU only memory is the reason: it
# takes 1.06 to 1.14 of the time, and 0.26 of the memory.
SCORES = {"cpu": 2**22, "gpu": 2**29}
CHUNK = {"cpu": 2**21, "gpu": 2**28}
# Scores from which it runs, and of a chunk of a frozen head, where memory counts more
# than time: `with_few_scores`. Chunks add nothing up there.
FEW = 2**26
ROWS = 128, 512  # of a chunk on a CPU: at least, at most
CLASSES = 1_024  # from which it runs
_TILE = 128  # columns of a GPU's tile; see `padded_matmul`


class Head(NamedTuple):
    """A product whose result are scores, as a forward pass has computed them.

    Attributes:
        x: ``[…, in]``
        kernel: ``[in, classes]``; a table of an embedding is ``[classes, in]``.
        bias: ``[classes]`` or ``None``.
        soft_cap: The bound of the scores, ``cap · tanh(scores / cap)``, or ``None``.
        turned: Whether the kernel is a table.
    """

    x: Any
    kernel: Any
    bias: Any = None
    soft_cap: Any = None
    turned: bool = False

    @property
    def classes(self) -> int:
        """How many scores a row has."""
        return self.kernel.shape[0 if self.turned else 1]


class ScoredRows(NamedTuple):
    """What is known of rows of scores, each ``[…]``, or ``None`` where nobody asked.

    Attributes:
        losses: The cross-entropy of each.
        first: Whether the label's score is the highest, and the first of these.
        higher: How many scores are higher than the label's.
        entropy: That of the softmax of the scores.
    """

    losses: Any
    first: Any = None
    higher: Any = None
    entropy: Any = None


def knowing(scored: ScoredRows | None) -> AbstractContextManager[Any]:
    """In the block metrics read what is known of rows, instead of their scores."""
    return value_scope(_scored, scored)


def known_rows(labels: Any) -> ScoredRows | None:
    """What is known of the rows with these labels, in a block of `knowing`.

    Example:
        >>> with knowing(ScoredRows(jnp.zeros(2))):
        ...     print(known_rows(jnp.ones(2)) is None, known_rows(jnp.ones(3)) is None)
        False True
    """
    scored = _scored.get()
    return scored if scored and scored.losses.shape == labels.shape else None


def with_few_scores() -> AbstractContextManager[Any]:
    """In the block a head's loss spares memory, whatever time that takes."""
    return value_scope(_few, True)


@dataclasses.dataclass(frozen=True)
class RowChunks:
    """How the rows are gone through.

    Attributes:
        chunk: Rows of a chunk; ``None``: as many as `rows_of_chunk` says.
        frozen_chunk: Those where the weights have no gradient; ``None``: as many.
        first, higher, entropy: Whether `ScoredRows` has these.
        sorts: Whether rows that count nothing are put last, and left out.
        narrow: Whether scores of half precision stay so between the product and the
            losses; else they are float32.
        once: Whether Triton's kernel reads them: see `cross_entropy_gpu`.
        across: Axes of the mesh that divide the classes.
        spare: Classes that fill up those of the last devices.
        kernel_slope, x_slope: Which gradients are computed with the losses.
    """

    chunk: int | None = None
    frozen_chunk: int | None = None
    first: bool = False
    higher: bool = False
    entropy: bool = False
    sorts: bool = False
    narrow: bool = False
    once: bool = False
    across: tuple[str, ...] = ()
    spare: int = 0
    x_slope: bool = False
    kernel_slope: bool = False


def fits(head: Head) -> bool:
    """Whether it runs for the scores of a head."""
    x, classes = head.x, head.classes
    if not is_head_loss_enabled() or portable.current() is not None:
        return False
    if classes < CLASSES or not jnp.issubdtype(x.dtype, jnp.floating):
        return False
    if is_spread() and row_division() is None:
        if (parts := class_parts(head)) == 1:
            return False
        classes = -(-classes // parts)
    rows = math.prod(x.shape[:-1])
    part = device_part(jax.ShapeDtypeStruct((rows, x.shape[-1]), x.dtype))
    if part is None or x.ndim < 2 or x.dtype != head.kernel.dtype:
        return False
    rows, platform = part.size // part.shape[-1], _platform()
    least = min(SCORES[platform], FEW) if _few.get() else SCORES[platform]
    if rows * classes < least or rows <= rows_of_chunk(rows, classes, _few.get()):
        return False
    # Few rows of wide vectors: the sum of two gradients of weights takes longer.
    return max(ROWS) >= 2 * x.shape[-1] or rows >= 2 * ROWS[0]


def class_parts(head: Head) -> int:
    """Devices that divide a head's classes in what is traced now; 1 if none do."""
    rows = math.prod(head.x.shape[:-1])
    return 1 if rows % row_parts() else feature_parts()


def _platform() -> str:
    return "cpu" if jax.default_backend() == "cpu" else "gpu"


def rows_of_chunk(rows: int, classes: int, few: bool = False) -> int:
    """Rows of a chunk, of so many in all: chunks are alike, the last is filled up.

    Args:
        few: Whether memory counts more than time.

    Example:
        >>> rows_of_chunk(1, 50_257)
        1
    """
    platform = _platform()
    scores = min(CHUNK[platform], FEW) if few else CHUNK[platform]
    most = max(scores // classes, ROWS[0])
    if platform == "cpu":
        most = min(most, ROWS[1])
    if rows <= most:
        return rows
    chunks, unit = -(-rows // most), 8 if platform == "cpu" else _TILE
    return -(-rows // (chunks * unit)) * unit


def head_cross_entropy(
    head: Head,
    labels: jax.Array,
    factors: jax.Array,
    live: jax.Array | None = None,
    *,
    smoothing: Any = 0.0,
    plan: RowChunks | None = None,
) -> tuple[ScoredRows, jax.Array]:
    """The rows' cross-entropies, and a zero with the gradient of their weighted sum.

    Args:
        head: The product.
        labels: ``[…]``; one that is no class gives NaN.
        factors: ``[…]``, the weight of each row's loss in the sum.
        live: ``[…]``, false for rows that may hold anything and of which nothing is
            asked; ``None``: all are.
        smoothing: Share of the uniform distribution mixed into the labels.
        plan: How the rows are gone through.

    Returns:
        The losses and ranks, which have no derivative; and the zero, whose derivative
        is that of ``sum(factors * losses)``.

    Example:
        >>> head = Head(jnp.zeros((2, 3)), jnp.zeros((3, 4)))
        >>> scored, _ = head_cross_entropy(head, jnp.array([0, 3]), jnp.ones(2))
        >>> [round(float(loss), 4) for loss in scored.losses]
        [1.3863, 1.3863]
    """
    shape, classes = labels.shape, head.classes
    x = head.x.reshape(-1, head.x.shape[-1])
    part = x if (own := device_part(x)) is None else own
    plan = plan or RowChunks()
    if plan.chunk is None:
        sizes = part.shape[0], -(-classes // class_parts(head))
        chunks = rows_of_chunk(*sizes), rows_of_chunk(*sizes, _few.get())
        plan = dataclasses.replace(plan, chunk=chunks[0], frozen_chunk=chunks[1])
    plain = is_known(smoothing, 0)
    numbers = {} if plain else {"smoothing": jnp.asarray(smoothing, jnp.float32)}
    if head.soft_cap is not None:
        numbers["cap"] = jnp.asarray(head.soft_cap, jnp.float32)
    alive = None
    if live is not None:
        alive = live.reshape(-1)
        x = jnp.where(alive[:, None], x, 0)
    least = min(c for c in (plan.chunk, plan.frozen_chunk) if c is not None)
    if alive is None or least >= part.shape[0]:
        plan = dataclasses.replace(plan, sorts=False)
    rows = labels.reshape(-1).astype(jnp.int32), factors.reshape(-1), alive
    weights = head.kernel, head.bias
    results: Any = _losses((plan, head.turned), x, weights, numbers, rows)
    scored, carrier = results
    scored = jax.tree.map(lambda v: lax.stop_gradient(v.reshape(shape)), scored)
    return scored, carrier


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _losses(static, x, weights, numbers, rows) -> tuple[ScoredRows, jax.Array]:
    scored, _ = _on_devices(static, x, weights, numbers, rows)
    return scored, jnp.zeros((), jnp.float32)


def _forward(static, x, weights, numbers, rows):
    plan, turned = static
    values = [jax.tree.map(_value, v) for v in (x, weights, numbers, rows)]
    plan = dataclasses.replace(
        plan, x_slope=_is_differentiated(x), kernel_slope=_is_differentiated(weights)
    )
    if not plan.kernel_slope:
        plan = dataclasses.replace(plan, chunk=plan.frozen_chunk or plan.chunk)
    scored, slopes = _on_devices((plan, turned), *values)
    examples = tuple(jnp.zeros((), v.dtype) for v in jax.tree.leaves(values[:2]))
    return (scored, jnp.zeros((), jnp.float32)), (slopes, examples)


def _backward(static, residuals, cotangents):
    (slopes, examples), (_, slope) = residuals, cotangents
    if isinstance(slope, SymbolicZero):
        return None, None, None, None
    leaves = iter(examples)

    def scale(value, example):
        return None if value is None else (value * slope).astype(example.dtype)

    x_slope, kernel_slope, bias_slope = slopes
    x_slope = scale(x_slope, next(leaves))
    kernel_slope = scale(kernel_slope, next(leaves))
    bias_slope = scale(bias_slope, next(leaves, None))
    return x_slope, (kernel_slope, bias_slope), None, None


_losses.defvjp(_forward, _backward, symbolic_zeros=True)


def _value(primal: Any) -> Any:
    return getattr(primal, "value", primal)


def _is_differentiated(primals: Any) -> bool:
    leaves = jax.tree.leaves(primals, is_leaf=lambda v: hasattr(v, "perturbed"))
    return any(leaf.perturbed for leaf in leaves)


def _on_devices(static, x, weights, numbers, rows):
    """What ``_in_chunks`` gives, each device with the rows and classes that it has."""
    kernel, bias = weights
    if class_parts(Head(x, kernel, bias, turned=static[1])) > 1:
        return _by_classes(static, x, weights, numbers, rows)
    leaves, tree = jax.tree.flatten((x, weights, numbers, rows))
    shared = len(jax.tree.leaves((weights, numbers)))
    structures = []

    def flat(*leaves: Any) -> tuple[Any, ...]:
        results, structure = jax.tree.flatten(
            _in_chunks(static, *tree.unflatten(leaves))
        )
        structures.append(structure)
        return tuple(results)

    plan = static[0]
    summed = len(jax.tree.leaves(weights)) if plan.kernel_slope else 0
    of_rows = 1 + plan.first + plan.higher + plan.entropy + plan.x_slope
    axes = (0, *[None] * shared, *[0] * (len(leaves) - 1 - shared))
    results = by_rows(flat, axes, (*[0] * of_rows, *[None] * summed))(*leaves)
    return structures[-1].unflatten(results)


def head_log_probabilities(
    head: Head, labels: jax.Array, live: jax.Array | None = None, entropy: bool = False
) -> tuple[jax.Array, jax.Array | None]:
    """The log-probability of each row's label, and the entropy, ``[…]`` in float32.

    The gradient may weigh each row by any number, such as one that depends on the sum
    of all: the scores are made once more for it, as ``jax.checkpoint`` would.

    Args:
        head: The product.
        labels: ``[…]``; one that is no class gives NaN.
        live: ``[…]``, false for rows that are not computed, and give 0.
        entropy: Whether that is asked for, too; it has no gradient.

    Example:
        >>> head = Head(jnp.zeros((2, 3)), jnp.zeros((3, 4)))
        >>> likely, _ = head_log_probabilities(head, jnp.array([0, 3]))
        >>> [round(float(value), 4) for value in likely]
        [-1.3863, -1.3863]
    """
    weights = head.kernel, head.bias
    rows = head.soft_cap, labels, live
    return _likely((head.turned, entropy), head.x, weights, rows)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _likely(static: Any, x: Any, weights: Any, rows: Any) -> Any:
    scored, _ = _score(static, x, weights, rows)
    results, live = (-scored.losses, scored.entropy), rows[2]
    return jax.tree.map(lambda v: v if live is None else jnp.where(live, v, 0), results)


def _score(static: Any, x: Any, weights: Any, rows: Any, factors: Any = None) -> Any:
    """`head_cross_entropy` of rows that are not all looked at."""
    (turned, entropy), (cap, labels, live) = static, rows
    kernel, bias = weights
    head = Head(x, kernel, bias, cap, turned)
    entropy = entropy and factors is None
    factors = jnp.ones(labels.shape, jnp.float32) if factors is None else factors
    plan = RowChunks(entropy=entropy, sorts=live is not None)
    return head_cross_entropy(head, labels, factors, live, plan=plan)


def _likely_forward(static: Any, x: Any, weights: Any, rows: Any):
    learnt = () if _is_differentiated(weights) else None
    x, weights, rows = (jax.tree.map(_value, v) for v in (x, weights, rows))
    return _likely(static, x, weights, rows), (x, weights, rows, learnt)


def _likely_backward(static, residuals, slopes):
    (x, weights, rows, learnt), (slope, _) = residuals, slopes
    if isinstance(slope, SymbolicZero):
        return None, None, None

    def total(x: Any, weights: Any) -> jax.Array:
        return _score(static, x, weights, rows, -slope)[1]

    if learnt is None:  # a frozen head has no gradient
        return jax.grad(total)(x, weights), None, None
    return *jax.grad(total, (0, 1))(x, weights), None


_likely.defvjp(_likely_forward, _likely_backward, symbolic_zeros=True)


def _by_classes(static, x, weights, numbers, rows):
    """``_on_devices`` where each device has a part of the classes, too."""
    division = feature_division()
    assert division is not None
    mesh, batch, across = division
    plan, turned = static
    spare = -weights[0].shape[0 if turned else 1] % feature_parts()
    plan = dataclasses.replace(plan, across=across, once=False, spare=spare)
    mine = PartitionSpec(batch or None)
    kernel = PartitionSpec(*((across, None) if turned else (None, across)))
    specs = kernel, PartitionSpec(across)

    def run(*arguments: Any) -> Any:
        scored, (x_slope, *slopes) = _in_chunks((plan, turned), *arguments)
        slopes = jax.tree.map(lambda v: lax.psum(v, batch) if batch else v, slopes)
        return scored, (x_slope, *slopes)

    scored, (x_slope, *slopes) = jax.shard_map(
        run,
        mesh=mesh,
        in_specs=(mine, specs, PartitionSpec(), mine),
        out_specs=(mine, (mine, *specs)),
        check_vma=False,
    )(x, _with_spare(weights, turned, spare), numbers, rows)
    return scored, (x_slope, *_cut(slopes, weights))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _in_chunks(static, x, weights, numbers, rows):
    """The rows' losses and ranks, and the gradients of their weighted sum.

    Returns:
        ``ScoredRows``, and the gradients by ``x``, the kernel and the bias, ``None``
        where the plan has none.
    """
    return _by_loop(_while, static, x, weights, numbers, rows)


@_in_chunks.defjvp
def _in_chunks_jvp(static, primals, tangents):
    # For gradients of gradients: a scan has derivatives. Else it would have another
    # fault: where a pass is computed again (``jax.checkpoint``), what a scan adds up is
    # kept chunk by chunk, a copy of the weights for each.
    return jax.jvp(functools.partial(_by_loop, _scan, static), primals, tangents)


def _by_loop(loop, static, x, weights, numbers, rows):
    """``_in_chunks``, one chunk after another in a loop."""
    (plan, _), (labels, factors, alive) = static, rows
    count, size = x.shape[0], min(plan.chunk, x.shape[0])
    scale = None
    if x.dtype == jnp.float16:  # factors are of the order of 1 / rows
        scale = jnp.maximum(jnp.max(jnp.abs(factors)), jnp.finfo(jnp.float32).tiny)
        factors = factors / scale
    one = functools.partial(_chunk, static, _fill_up(weights, static), numbers)
    if size == count:
        scored, x_slope, slopes = one(x, labels, factors, alone=True)
    else:
        order = jnp.argsort(~alive, stable=True) if plan.sorts else None
        columns = [x, labels, factors]
        if order is not None:
            columns = [v[order] for v in columns]
        columns = [_into_chunks(v, size) for v in columns]
        trips = len(columns[0])
        if order is not None:
            trips = -(-alive.sum(dtype=jnp.int32) // size)
        scored, x_slope, slopes = loop(one, columns, trips)
        merged = jax.tree.map(
            lambda v: v.reshape(-1, *v.shape[2:])[:count], (scored, x_slope)
        )
        if order is not None:
            merged = jax.tree.map(lambda v: v.at[order].set(v), merged)
        scored, x_slope = merged
    kernel_slope, bias_slope = _cut(slopes, weights)
    gradients = x_slope, kernel_slope, bias_slope
    if scale is not None:
        gradients = jax.tree.map(lambda v: v * scale, gradients)
    return scored, gradients


def _fill_up(weights: Any, static: Any) -> Any:
    """Kernel and bias with columns filled up to a GPU's whole tiles."""
    classes = weights[0].shape[0 if static[1] else 1]
    spare = -classes % _TILE if _platform() == "gpu" else 0
    return *_with_spare(weights, static[1], spare), classes


def _with_spare(weights: Any, turned: bool, spare: int) -> Any:
    """Kernel and bias with so many classes of zeros behind the last."""
    if not spare:
        return weights
    kernel, bias = weights
    pads = [(0, spare), (0, 0)] if turned else [(0, 0), (0, spare)]
    return jnp.pad(kernel, pads), None if bias is None else jnp.pad(bias, (0, spare))


def _cut(slopes: Any, weights: Any) -> tuple[Any, ...]:
    """The gradients of kernel and bias without those of spare columns."""
    return tuple(
        slope if slope is None else slope[tuple(map(slice, weight.shape))]
        for slope, weight in zip(slopes, weights, strict=True)
    )


def _into_chunks(value: jax.Array, size: int) -> jax.Array:
    """``[rows, …]`` as ``[chunks, size, …]``, filled up with zeros."""
    pads = [(0, -len(value) % size), *[(0, 0)] * (value.ndim - 1)]
    return jnp.pad(value, pads).reshape(-1, size, *value.shape[1:])


def _while(one, columns, trips):
    """The first chunks one after another; of the others nothing is computed."""
    specs = jax.eval_shape(one, *(v[0] for v in columns))
    sums = jax.tree.map(lambda v: jnp.zeros(v.shape, jnp.float32), specs[2])
    count = len(columns[0])
    results = jax.tree.map(lambda v: jnp.zeros((count, *v.shape), v.dtype), specs[:2])

    def body(carry):
        i, sums, results = carry
        parts = [lax.dynamic_index_in_dim(v, i, keepdims=False) for v in columns]
        scored, x_slope, slopes = one(*parts)
        results = jax.tree.map(
            lambda all, v: lax.dynamic_update_index_in_dim(all, v, i, 0),
            results,
            (scored, x_slope),
        )
        return i + 1, jax.tree.map(jnp.add, sums, slopes), results

    begin = jnp.int32(0), sums, results
    _, sums, results = lax.while_loop(lambda carry: carry[0] < trips, body, begin)
    return *results, sums


def _scan(one, columns, trips):
    """All chunks one after another."""
    del trips
    slopes = jax.eval_shape(one, *(v[0] for v in columns))[2]
    sums = jax.tree.map(lambda v: jnp.zeros(v.shape, jnp.float32), slopes)

    def body(sums, parts):
        scored, x_slope, slopes = one(*parts)
        return jax.tree.map(jnp.add, sums, slopes), (scored, x_slope)

    sums, results = lax.scan(body, sums, columns)
    return *results, sums


def _chunk(static, weights, numbers, x, labels, factors, alone=False):
    """Losses, ranks and gradients of a few rows.

    Args:
        alone: Whether there is no other chunk, to whose gradients of weights these are
            added: they need not be in float32.
    """
    (plan, turned), (kernel, bias, classes) = static, weights
    over = (((1,), (1 if turned else 0,)), ((), ()))
    differentiates = plan.x_slope or plan.kernel_slope
    if plan.once and differentiates and _reads_once(plan, numbers, kernel, turned):
        scores = lax.dot_general(x, kernel, over)
        scores = scores if bias is None else scores + bias
        scored, slopes = _read_once(plan, scores, labels, factors, classes)
        return scored, *_products(plan, turned, slopes, x, kernel, bias, alone)
    stored = x.dtype if plan.narrow else jnp.float32
    scores = lax.dot_general(x, kernel, over, preferred_element_type=stored)
    scores = scores.astype(jnp.float32)
    if bias is not None:
        scores = scores + bias.astype(jnp.float32)
    bent = None
    if (cap := numbers.get("cap")) is not None:
        bent = jnp.tanh(scores / cap)
        scores = cap * bent
    places = lax.broadcasted_iota(jnp.int32, scores.shape, 1)
    total_classes = classes * _parts(plan) - plan.spare
    is_class = (labels >= 0) & (labels < total_classes)
    first, here = _first_class(plan, classes), classes
    if plan.spare:
        here = jnp.clip(total_classes - first, 0, classes)
    if plan.spare or scores.shape[1] > classes:
        scores = jnp.where(places < here, scores, -jnp.inf)
    labels = labels - first  # among the classes of this device
    is_here = (labels >= 0) & (labels < here)
    mine = places == jnp.where(is_here, labels, -1)[:, None]
    top = lax.stop_gradient(jnp.max(scores, axis=1, keepdims=True))
    top = _over(plan, lax.pmax, top)
    shares = jnp.exp(scores - top)
    total = _over(plan, lax.psum, jnp.sum(shares, axis=1, keepdims=True))
    place = jnp.clip(labels, 0, classes - 1)[:, None]
    own = jnp.take_along_axis(scores, place, axis=1)[:, 0]
    own = _over(plan, lax.psum, jnp.where(is_here, own, 0)) if plan.across else own
    log_total = jnp.log(total)[:, 0]
    losses = log_total - (own - top[:, 0])
    if (smoothing := numbers.get("smoothing")) is not None:
        mean = jnp.sum(jnp.where(places < here, scores - top, 0), axis=1)
        mean = _over(plan, lax.psum, mean) / total_classes
        losses = (1 - smoothing) * losses + smoothing * (log_total - mean)
    losses = jnp.where(is_class, losses, jnp.nan)
    scored = _rank(plan, scores, jnp.where(is_class, own, jnp.nan), places, labels)
    scored = scored._replace(losses=losses)
    if plan.entropy:
        parts = jnp.where(shares > 0, shares * (scores - top), 0)
        mean = _over(plan, lax.psum, jnp.sum(parts, axis=1)) / total[:, 0]
        entropy = log_total - mean
        scored = scored._replace(entropy=entropy)
    if not differentiates:
        return scored, None, (None, None)
    goal: Any = mine
    if smoothing is not None:
        goal = jnp.where(mine, 1 - smoothing, 0) + smoothing / total_classes
        goal = jnp.where(places < here, goal, 0)
    factors = jnp.where(is_class | (factors == 0), factors, jnp.nan)
    slopes = (shares / total - goal) * factors[:, None]
    if bent is not None:
        slopes = slopes * (1 - bent * bent)
    return scored, *_products(plan, turned, slopes, x, kernel, bias, alone)


def _parts(plan: RowChunks) -> int:
    """Devices that the classes are divided over."""
    return math.prod(map(lax.axis_size, plan.across))


def _first_class(plan: RowChunks, classes: int) -> Any:
    """The number of this device's first class, of so many on each."""
    return lax.axis_index(plan.across) * classes if plan.across else 0


def _over(plan: RowChunks, reduce: Callable, value: Any) -> Any:
    """A value of the classes of all devices, from that of each."""
    return reduce(value, plan.across) if plan.across else value


def _reads_once(plan, numbers, kernel, turned) -> bool:
    """Whether Triton's kernel computes what is asked of plain scores."""
    fitting = kernel.dtype == jnp.bfloat16 and not kernel.shape[not turned] % GROUP
    asked = plan.higher or plan.entropy
    return fitting and not numbers and not asked and runs_kernels()


def _read_once(plan, scores, labels, factors, classes):
    """Losses, ranks, and the gradients by the scores, which are read twice at most."""
    is_class = (labels >= 0) & (labels < classes)
    place = jnp.clip(labels, 0, classes - 1)
    own = jnp.take_along_axis(scores, place[:, None], axis=1)[:, 0]
    total, first, slopes = read_with_gradient(scores, place, factors, classes)
    losses = jnp.where(is_class, total - own.astype(jnp.float32), jnp.nan)
    first = (first > 0) & is_class if plan.first else None
    return ScoredRows(losses, first), slopes


def _rank(plan, scores, own, places, labels) -> ScoredRows:
    """Where the label's score, ``own``, is among the others; NaN is never first."""
    own, first, higher = own[:, None], None, None
    if plan.first:
        behind = (scores < own) | ((scores == own) & (places >= labels[:, None]))
        first = jnp.all(behind, axis=1)
        first = _over(plan, lax.pmin, first.astype(jnp.int32)) > 0
        first = first & ~jnp.isnan(own[:, 0])
    if plan.higher:
        higher = jnp.sum(scores > own, axis=1, dtype=jnp.int32)
        higher = _over(plan, lax.psum, higher)
        most = scores.shape[1] * _parts(plan)
        higher = jnp.where(jnp.isnan(own[:, 0]), most, higher)
    return ScoredRows(None, first, higher)


def _products(plan, turned, slopes, x, kernel, bias, alone):
    """The gradients by rows, kernel and bias, from those by the scores."""
    narrow, x_slope, kernel_slope, bias_slope = slopes.astype(x.dtype), None, None, None
    exact = jnp.float32 if x.dtype == jnp.float16 else x.dtype
    if plan.x_slope:
        over = (((1,), (0 if turned else 1,)), ((), ()))
        x_slope = lax.dot_general(narrow, kernel, over, preferred_element_type=exact)
        x_slope = _over(plan, lax.psum, x_slope)
    if plan.kernel_slope:
        sides = (narrow, x) if turned else (x, narrow)
        over = (((0,), (0,)), ((), ()))
        wide = exact if alone else jnp.float32
        kernel_slope = lax.dot_general(*sides, over, preferred_element_type=wide)
        if bias is not None:
            bias_slope = jnp.sum(slopes, axis=0)
    return x_slope, (kernel_slope, bias_slope)
