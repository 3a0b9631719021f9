"""The product of one row with a matrix, with what comes before and behind it.

While one row of text is written, nearly all time goes into reading weights and into the
beginnings of kernels. `call` is one kernel of Triton for a product, for what leads to
its input (a normalization) and for what follows (a bias, an activation, a gate, a
residual sum): see `exburn.models.generation.fusing`, which finds these in a trace.

Replaces: a matrix product of eight rows, and XLA's kernels around it; for weights in
few bits, XLA's fused sums of them.

Runs: where `dispatch` says so, in the loop that writes one row.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.runtime.kernels.dispatch import options

Blocks = list[jax.Array]


@dataclasses.dataclass(frozen=True)
class Tiling:
    """How a program reads its part of the matrix.

    Attributes:
        outputs: Entries of the result that a program computes.
        terms: Terms of their sums that it reads at a time.
    """

    outputs: int
    terms: int
    warps: int


@dataclasses.dataclass(frozen=True)
class Around:
    """What is computed around a product.

    Attributes:
        totals: Of whole vectors, and which of their places are filled: numbers such as
            their mean.
        before: The product's input, of tiles of the vectors and these numbers.
        after: The results, of the product's and of further vectors of its length.
    """

    totals: Callable[[Blocks, jax.Array], Blocks]
    before: Callable[[Blocks, Blocks], jax.Array]
    after: Callable[[Blocks, Blocks], Blocks]


PREFIX = "vector_product_"
PLAIN = Around(lambda v, mask: [], lambda v, t: v[0], lambda y, v: y)


def marked(form: str, plain: Callable) -> Callable:
    """A product of one row, by a name that `exburn.models.generation.fusing` finds.

    Args:
        form: As of ``call``.
        plain: The product of ``[1, terms]`` with the parts: ``[1, outputs]``.
    """

    def run(x: jax.Array, *parts: jax.Array) -> jax.Array:
        return plain(x, *parts)

    run.__name__ = f"{PREFIX}{form}"
    return jax.jit(run)


def call(
    form: str,
    matrices: Sequence[Sequence[jax.Array]],
    vectors: Sequence[jax.Array],
    others: Sequence[jax.Array],
    results: Sequence[Any],
    around: Around = PLAIN,
    tiling: Tiling | None = None,
) -> list[jax.Array]:
    """Products of one vector with matrices of one shape, and what is around them.

    Args:
        form: ``"columns"``: ``[terms, outputs]``; ``"rows"``: ``[outputs, terms]``;
            ``"int8"``: rows, and a scale for each; ``"int4"``: ``[outputs, blocks,
            half a block]`` of two entries a byte, and ``[outputs, blocks]`` of scales.
        matrices: The parts of each matrix.
        vectors: ``[terms]`` or ``[1]``, of which the input is computed.
        others: ``[outputs]`` or ``[1]``, which come in behind the product.
        results: Dtypes of the results, ``[outputs]``.
    """
    from jax.experimental import pallas as pl

    outputs, terms = sizes(form, matrices[0])
    tiling = tiling or tiling_for(form, outputs, terms, len(matrices))
    arguments = [*vectors, *others, *(part for parts in matrices for part in parts)]
    kernel = functools.partial(
        _kernel,
        form=form,
        counts=(len(vectors), len(others), len(matrices), len(results)),
        around=around,
        tiling=tiling,
        size=(outputs, terms),
    )
    shapes = [jax.ShapeDtypeStruct((outputs,), dtype) for dtype in results]
    return pl.pallas_call(
        kernel,
        grid=(-(-outputs // tiling.outputs),),
        out_shape=shapes,
        name=f"{PREFIX}{form}_{len(matrices)}x{terms}x{outputs}",
        **options(tiling.warps, stages=1),
    )(*arguments)


def sizes(form: str, parts: Sequence[jax.Array]) -> tuple[int, int]:
    """Outputs and terms of a matrix."""
    shape = parts[0].shape
    if form == "columns":
        return shape[1], shape[0]
    return shape[0], math.prod(shape[1:]) * (2 if form == "int4" else 1)


def tiling_for(form: str, outputs: int, terms: int, matrices: int = 1) -> Tiling:
    """The tiling of a matrix."""
    whole = _power(terms)
    if form == "columns":
        if whole <= 1024:
            return Tiling(16, whole, 8)
        return Tiling(16, 2048 // matrices, 16)
    if form == "int4":
        return Tiling(8, min(2048, whole), 4)
    return Tiling(4, min(2048, whole), 4)


def _kernel(*refs: Any, form, counts, around, tiling, size) -> None:
    """One program. All that it reads is on its way before it waits for any of it."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    vectors, others, flat, results = _split(refs, counts)
    outputs, terms = size
    start, count = pl.program_id(0) * tiling.outputs, -(-terms // tiling.terms)
    readers = [_READERS[form](parts, tiling, start) for parts in flat]

    def load(i: Any) -> Any:
        return [reader.load(i) for reader in readers], readers[0].vectors(vectors, i)

    tiles = load(0)
    further = [_load(ref, (start,), (tiling.outputs,)) for ref in others]
    whole = tiles[1]
    if count > 1 or form == "int4":
        whole = [_load(ref, (0,), (_power(terms),)) for ref in vectors]
    totals = around.totals(whole, jnp.arange(_power(terms)) < terms)

    def add(sums: Any, tiles: Any) -> list:
        weights, near = tiles
        x = readers[0].inputs(near, lambda v: around.before(v, totals))
        each = zip(readers, sums, weights, strict=True)
        return [total + reader.multiply(tile, x) for reader, total, tile in each]

    def step(i: Any, carry: Any) -> Any:
        sums, tiles = carry
        coming = load(i + 1)
        return add(sums, tiles), coming

    carry = [jnp.zeros(reader.shape, jnp.float32) for reader in readers], tiles
    if count > 1:
        carry = jax.lax.fori_loop(0, count - 1, step, carry)
    sums = add(*carry)
    products = [reader.finish(v) for reader, v in zip(readers, sums, strict=True)]
    place = start + jnp.arange(tiling.outputs)
    mask = None if outputs % tiling.outputs == 0 else place < outputs
    for ref, value in zip(results, around.after(products, further), strict=True):
        triton.store(ref.at[place], value.astype(ref.dtype), mask=mask)


def _split(refs: Sequence[Any], counts: Sequence[int]) -> list[Any]:
    """Vectors, other vectors, the parts of each matrix, and results."""
    vectors, others, matrices, results = counts
    first, last = vectors + others, len(refs) - results
    parts = (last - first) // matrices
    flat = [refs[i : i + parts] for i in range(first, last, parts)]
    return [refs[:vectors], refs[vectors:first], flat, refs[last:]]


class _Rows:
    """Tiles of ``[outputs, terms]``, and a scale for each output if they have one."""

    axis = 1  # of the terms

    def __init__(self, parts: Sequence[Any], tiling: Tiling, start: Any):
        self._parts, self._start = parts, start
        self.shape = tiling.outputs, tiling.terms

    def load(self, i: Any) -> Any:
        """The weights of a tile."""
        starts = self._start, i * self.shape[1]
        return _load(self._parts[0], starts, self.shape, "evict_first")

    def vectors(self, refs: Sequence[Any], i: Any) -> Any:
        """What the product's input there is computed of."""
        size = self.shape[self.axis]
        return [_load(ref, (i * size,), (size,)) for ref in refs]

    def inputs(self, vectors: Any, before: Callable) -> Any:
        """The product's input, shaped to broadcast."""
        return jnp.expand_dims(before(vectors).astype(jnp.float32), 1 - self.axis)

    def multiply(self, tile: Any, x: Any) -> jax.Array:
        return tile.astype(jnp.float32) * x

    def finish(self, total: jax.Array) -> jax.Array:
        y = jnp.sum(total, axis=1)
        if len(self._parts) == 1:
            return y
        scale = _load(self._parts[1], (self._start,), (self.shape[0],))
        return y * scale.astype(jnp.float32)


class _Columns(_Rows):
    """Tiles of ``[terms, outputs]``."""

    axis = 0

    def __init__(self, parts: Sequence[Any], tiling: Tiling, start: Any):
        super().__init__(parts, tiling, start)
        self.shape = tiling.terms, tiling.outputs

    def load(self, i):
        starts = i * self.shape[0], self._start
        return _load(self._parts[0], starts, self.shape, "evict_first")

    def finish(self, total):
        return jnp.sum(total, axis=0)


class _Int4(_Rows):
    """Tiles of ``[outputs, blocks, half a block]`` of bytes."""

    def __init__(self, parts: Sequence[Any], tiling: Tiling, start: Any):
        super().__init__(parts, tiling, start)
        half = parts[0].shape[2]
        self.shape = tiling.outputs, tiling.terms // (2 * half), half

    def load(self, i):
        starts = self._start, i * self.shape[1]
        values = _load(self._parts[0], (*starts, 0), self.shape, "evict_first")
        return values, _load(self._parts[1], starts, self.shape[:2])

    def vectors(self, refs, i):
        _, count, half = self.shape
        places = _places(count, half, 2 * half) + i * count * 2 * half
        blocks = self._parts[0].shape[1]
        inside = None if blocks % count == 0 else places < blocks * 2 * half
        return [
            [_load_at(ref, places + more, inside) for ref in refs] for more in (0, half)
        ]

    def inputs(self, vectors, before):
        low, high = (before(half).astype(jnp.float32)[None] for half in vectors)
        return low - high / 16, high / 16, -8 * low

    def multiply(self, tile, x):
        # A byte as a number is 16 * high + low + 8, once 8 is added to its low half.
        (values, scale), (first, second, rest) = tile, x
        added = values ^ np.uint8(8)
        low = (added & np.uint8(15)).astype(jnp.float32)
        both = jax.lax.bitcast_convert_type(added, jnp.int8).astype(jnp.float32)
        terms = both * second + (low * first + rest)
        return terms * scale.astype(jnp.float32)[..., None]

    def finish(self, total):
        return jnp.sum(jnp.sum(total, axis=2), axis=1)


_READERS: dict[str, type[_Rows]] = {
    "columns": _Columns,
    "rows": _Rows,
    "int8": _Rows,
    "int4": _Int4,
}


def _load(ref: Any, starts: tuple, shape: tuple, policy: str | None = None) -> Any:
    """A block of an array, with zeros behind its ends; a number stays one."""
    if ref.shape == (1,) and len(shape) == 1:
        return ref[0]
    mask, places = None, []
    for axis, (start, size) in enumerate(zip(starts, shape, strict=True)):
        place = start + jax.lax.broadcasted_iota(jnp.int32, shape, axis)
        places.append(place)
        if ref.shape[axis] % size:
            inside = place < ref.shape[axis]
            mask = inside if mask is None else mask & inside
    return _load_at(ref, tuple(places), mask, policy)


def _load_at(ref: Any, places: Any, mask: Any, policy: str | None = None) -> Any:
    from jax.experimental.pallas import triton

    if ref.shape == (1,):
        return ref[0]
    more = {} if mask is None else {"mask": mask, "other": ref.dtype.type(0)}
    return triton.load(ref.at[places], eviction_policy=policy, **more)


def _places(rows: int, columns: int, stride: int) -> jax.Array:
    """``row * stride + column``."""
    row = jax.lax.broadcasted_iota(jnp.int32, (rows, columns), 0)
    return row * stride + jax.lax.broadcasted_iota(jnp.int32, (rows, columns), 1)


def _power(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()
