"""The product of one row with a matrix, with what comes before and behind it.

While one row of text is written, nearly all time goes into reading weights and into the
beginnings of kernels. `call` is one kernel of Triton for a product, for what leads to
its input (a normalization) and for what follows (a bias, an activation, a gate, a
residual sum): see `exburn.models.generation.fusing`, which finds these in a trace.

Replaces: a matrix product of eight rows, and XLA's kernels around it; for weights of 4
bits, XLA's fused sums of them.

Runs: in the loop that writes one row, where `dispatch` and `wins` say so.

Gain: `wins` has the figures.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

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


def name_product(form: str, plain: Callable) -> Callable:
    """A product of one row, by a name that `exburn.models.generation.fusing` finds.

    Args:
        form: As of ``call``.
        plain: The product of ``[1, terms]`` with the parts: ``[1, outputs]``.
    """

    def run(x: jax.Array, *parts: jax.Array) -> jax.Array:
        return plain(x, *parts)

    run.__name__ = f"{PREFIX}{form}"
    return jax.jit(run)


def wins(form: str, terms: int, dtype: Any) -> bool:
    """Whether the kernel was faster than XLA's, with what is around a product.

    On an H200, in bfloat16, a token of GPT-2 took 406 µs with it and 464 without. With
    more terms the columns of a tile are read in pieces too small for the memory: 3,072
    by 768 took 9 µs (XLA's 7), and a Llama of 2,048 by 8,192 twice as long as XLA's. In
    4 bits a Llama of 1B took 642 µs, and 949 without.

    Example:
        >>> wins("columns", 768, "bfloat16"), wins("columns", 2048, "bfloat16")
        (True, False)
    """
    if jnp.dtype(dtype).itemsize != 2:
        return False
    return terms >= 2048 if form == "int4" else 512 <= terms <= 1024


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
            ``"int4"``: ``[outputs, blocks, half a block]`` of two entries a byte, and
            ``[outputs, blocks]`` of scales.
        matrices: The parts of each matrix.
        vectors: ``[terms]`` or ``[1]``, of which the input is computed.
        others: ``[outputs]`` or ``[1]``, which come in behind the product.
        results: Dtypes of the results, ``[outputs]``.
    """
    from jax.experimental import pallas as pl

    outputs, terms = sizes(form, matrices[0])
    tiling = tiling or tiling_for(form, outputs, terms)
    arguments = [*vectors, *others, *(part for parts in matrices for part in parts)]
    more = options(tiling.warps, stages=1)
    kernel = functools.partial(
        _kernel,
        form=form,
        assembly="interpret" not in more,
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
        **more,
    )(*arguments)


def sizes(form: str, parts: Sequence[jax.Array]) -> tuple[int, int]:
    """Outputs and terms of a matrix."""
    shape = parts[0].shape
    if form == "columns":
        return shape[1], shape[0]
    return shape[0], math.prod(shape[1:]) * (2 if form == "int4" else 1)


def tiling_for(form: str, outputs: int, terms: int) -> Tiling:
    """The tiling of a matrix: all terms where registers hold them, few outputs of few.

    So as much as possible is on its way at once, on all processors.
    """
    whole = _power(terms)
    if form == "columns":
        return Tiling(8 if outputs < 1536 else 16, min(1024, whole), 8)
    if form == "int4":
        return Tiling(16 if outputs >= 4096 else 8, min(2048, whole), 4)
    return Tiling(4, min(2048, whole), 4)


def _kernel(*refs: Any, form, counts, around, tiling, size, assembly) -> None:
    """One program. All that it reads is on its way before it waits for any of it."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    vectors, others, flat, results = _split(refs, counts)
    outputs, terms = size
    start, count = pl.program_id(0) * tiling.outputs, -(-terms // tiling.terms)
    arithmetic = _Assembly if assembly else _Plain
    readers = [_READERS[form](parts, tiling, start, arithmetic) for parts in flat]

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
        return [reader.add(total, tile, x) for reader, total, tile in each]

    def step(i: Any, carry: Any) -> Any:
        sums, tiles = carry
        coming = load(i + 1)
        return add(sums, tiles), coming

    carry = [jnp.zeros(reader.sums, jnp.float32) for reader in readers], tiles
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


class _Plain:
    """Arithmetic of numbers in few bits, where kernels are interpreted."""

    @staticmethod
    def add(total: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        """``total + x * y``"""
        return total + x * y

    @staticmethod
    def low(values: jax.Array) -> jax.Array:
        """The signed lower half of each byte, in float32."""
        whole = jax.lax.bitcast_convert_type(values, jnp.int8)
        return ((whole << 4) >> 4).astype(jnp.float32)

    @staticmethod
    def high(values: jax.Array) -> jax.Array:
        return (jax.lax.bitcast_convert_type(values, jnp.int8) >> 4).astype(jnp.float32)


class _Assembly(_Plain):
    """The same on a GPU, where converting integers is slow.

    XLA's Triton neither joins products and sums nor reads four bytes at once. A byte b
    as the last one of ``0x4b000000`` is the number ``2 ** 23 + b``, less which it is
    exact.
    """

    @staticmethod
    def add(total, x, y):
        shape = jnp.broadcast_shapes(total.shape, x.shape, y.shape)
        args = [jnp.broadcast_to(v, shape) for v in (x, y, total)]
        return _assemble("fma.rn.f32 $0, $1, $2, $3;", "=f,f,f,f", 1, args)

    @staticmethod
    def low(values):
        return _bytes(values, "xor.b32 a, $4, 0x08080808; and.b32 a, a, 0x0F0F0F0F;", 8)

    @staticmethod
    def high(values):
        code = "xor.b32 a, $4, 0x80808080; shr.u32 a, a, 4; and.b32 a, a, 0x0F0F0F0F;"
        return _bytes(values, code, 8)


def _bytes(values: jax.Array, code: str, offset: int) -> jax.Array:
    """Bytes, after code that leaves them and an offset in ``a``, as float32."""
    parts = "".join(
        f"prmt.b32 b, a, 0x4B000000, 0x744{n}; mov.b32 f, b; "
        f"add.rn.f32 ${n}, f, 0f{0xCB000000 + offset:08X}; "
        for n in range(4)
    )
    code = "{ .reg .b32 a, b; .reg .f32 f; " + code + " " + parts + "}"
    return _assemble(code, "=f,=f,=f,=f,r", 4, [values])


def _assemble(code: str, constraints: str, pack: int, args: list) -> jax.Array:
    from jax.experimental.pallas import triton

    result = jax.ShapeDtypeStruct(args[0].shape, jnp.float32)
    more = {"constraints": constraints, "pack": pack, "result_shape_dtypes": [result]}
    return triton.elementwise_inline_asm(code, args=args, **more)[0]


class _Rows:
    """Tiles of ``[outputs, terms]``."""

    axis = 1  # of the terms

    def __init__(self, parts: Sequence[Any], tiling: Tiling, start: Any, arithmetic):
        self._parts, self._start, self._by = parts, start, arithmetic
        self.shape = self.sums = self._shape(tiling)

    def _shape(self, tiling: Tiling) -> tuple[int, ...]:
        """The shape of a tile."""
        return tiling.outputs, tiling.terms

    def load(self, i: Any) -> Any:
        """The weights of a tile."""
        starts = self._start, i * self.shape[1]
        return _load(self._parts[0], starts, self.shape, "evict_first")

    def vectors(self, refs: Sequence[Any], i: Any) -> Any:
        """The part of the vectors that the product's input there is computed of."""
        size = self.shape[self.axis]
        return [_load(ref, (i * size,), (size,)) for ref in refs]

    def inputs(self, vectors: Any, before: Callable) -> Any:
        """The product's input, shaped to broadcast."""
        return jnp.expand_dims(before(vectors).astype(jnp.float32), 1 - self.axis)

    def add(self, total: jax.Array, tile: Any, x: Any) -> jax.Array:
        """Sums with the terms of another tile."""
        return self._by.add(total, tile.astype(jnp.float32), x)

    def finish(self, total: jax.Array) -> jax.Array:
        return jnp.sum(total, axis=1)


class _Columns(_Rows):
    """Tiles of ``[terms, outputs]``."""

    axis = 0

    def _shape(self, tiling):
        return tiling.terms, tiling.outputs

    def load(self, i):
        starts = i * self.shape[0], self._start
        return _load(self._parts[0], starts, self.shape, "evict_first")

    def finish(self, total):
        return jnp.sum(total, axis=0)


class _Int4(_Rows):
    """Tiles of ``[outputs, blocks, half a block]`` of bytes."""

    def _shape(self, tiling):
        half = self._parts[0].shape[2]
        return tiling.outputs, tiling.terms // (2 * half), half

    def __init__(self, parts: Sequence[Any], tiling: Tiling, start: Any, arithmetic):
        super().__init__(parts, tiling, start, arithmetic)
        self.sums = self.shape[:2]

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
        return [before(half).astype(jnp.float32)[None] for half in vectors]

    def add(self, total, tile, x):
        (values, scale), by = tile, self._by
        terms = by.add(by.high(values) * x[1], by.low(values), x[0])
        return by.add(total, jnp.sum(terms, axis=2), scale.astype(jnp.float32))

    def finish(self, total):
        return jnp.sum(total, axis=1)


_READERS: dict[str, type[_Rows]] = {
    "columns": _Columns,
    "rows": _Rows,
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
