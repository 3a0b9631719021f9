"""Attention of sequences that devices divide: keys and values go round in a ring.

Each device has a part of the queries, and meets the keys and values of all others in
turn. What it has read so far is merged with a block by the logs of their sums of
exponentials, so no device ever has all keys; the gradient goes round the same way.

Causal attention leaves devices with late positions twice the work of the mean. There a
device takes a piece of the front and one of the back ("zigzag"), which all have the
same number of blocks to read. Parts change places at the entrance and at the exit only:
everything else sees positions in their order.

Replaces: attention over whole rows, where a mesh divides them.

Runs: where `ring_fits` says so. Blocks that no query sees are skipped, and behind a
causal window they are not even sent. Blocks that need no mask go by cuDNN's kernel;
where windows or documents say which, in tiles.

Sources: Liu et al., *Ring Attention with Blockwise Transformers for Near-Infinite
Context*, 2023; Brandon et al., *Striped Attention*, 2023.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, PartitionSpec

from exburn.runtime.blocks.rematerializing import ATTENTION_OF_PARTS as KEPT
from exburn.runtime.kernels.ring_blocks import (
    LOWEST,
    QUERIES,
    Seen,
    Side,
    attend_block,
    attend_block_by_cudnn,
    differentiate_block,
    differentiate_block_by_cudnn,
)
from exburn.runtime.sharding.current import sequence_division

TILE = 2048  # positions, at least, of blocks whose form is found at run time
_CUDNN_UNIT = 8  # positions: blocks that cuDNN's kernel takes are multiples of it
_TOGETHER = (Side(0, None),) * 2  # of blocks whose queries and keys begin together
_BLIND, _UNREAD = -(2**30), 1 - 2**30  # owners: of queries and of keys without any


class Ring(NamedTuple):
    """What the ring is; hashable.

    Attributes:
        mesh: The mesh.
        rows, heads: Axes of the mesh that divide the batch and the heads.
        axis: The axis that divides positions.
        cudnn: Whether blocks without a mask go by cuDNN's kernel.
        seen: Which keys queries see.
    """

    mesh: Mesh
    rows: Any
    heads: Any
    axis: str
    cudnn: bool
    seen: Seen

    @property
    def zigzag(self) -> bool:
        """Whether a device has a piece of the front and one of the back."""
        return self.seen.causal and self.seen.window is None

    @property
    def size(self) -> int:
        """Devices of the ring."""
        return self.mesh.shape[self.axis]

    def steps(self, part: int) -> int:
        """Blocks of so many keys that a device meets: those before it in a window."""
        if self.seen.window is None or not self.seen.causal:
            return self.size
        return min(self.size, 1 + -(-(self.seen.window - 1) // part))

    def spec(self, *axes: Any) -> PartitionSpec:
        return PartitionSpec(self.rows, *axes)

    def spread(self, function: Any, inputs: str, outputs: str) -> Any:
        """A function of each device's parts: x has heads, l is a log, o owners."""
        specs = {
            "x": self.spec(self.axis, self.heads),
            "l": self.spec(self.heads, self.axis),
            "o": self.spec(self.axis),
        }
        return jax.shard_map(
            functools.partial(function, self),
            mesh=self.mesh,
            in_specs=tuple(specs[kind] for kind in inputs),
            out_specs=tuple(specs[kind] for kind in outputs),
            check_vma=False,
        )


def ring_fits(query: Any, key: Any, value: Any, *, causal: bool, window: Any) -> bool:
    """Whether attention goes round, in what is traced now.

    Where the mesh divides positions, and queries and keys are as many if their distance
    counts. All else is computed as XLA divides it, which gathers the keys.
    """
    if sequence_division() is None or query.shape[-1] != value.shape[-1]:
        return False
    sizes = (*query.shape, *key.shape)
    if not all(isinstance(size, int) for size in sizes):
        return False
    if causal or window is not None:
        return query.shape[1] == key.shape[1] > 1
    return min(query.shape[1], key.shape[1]) > 1


def ring_attention(
    query,
    key,
    value,
    *,
    owners=None,
    query_mask=None,
    key_mask=None,
    causal=False,
    window=None,
    scale,
    soft_cap=None,
    cudnn=False,
):
    """Attention of heads over positions that the mesh in force divides.

    Args:
        query: ``[batch, targets, heads, size]``.
        key, value: ``[batch, sources, key heads, size]``.
        owners: ``[batch, positions]``: which document a position is of; or None.
        query_mask: ``[batch, targets]``, false for queries that see nothing.
        key_mask: ``[batch, sources]``, false for keys that are not seen.
        causal, window, scale, soft_cap: As of ``attend``.
        cudnn: Whether cuDNN's kernel can run for what each device has.

    Returns:
        ``[batch, targets, heads, size]``; queries that see nothing give the mean value,
        as on one device.
    """
    ring = _make_ring(query, key, Seen(causal, window, float(scale), soft_cap), cudnn)
    targets, sources = query.shape[1], key.shape[1]
    query, key, value = (_fill(ring, x) for x in (query, key, value))
    owns = _owners(owners, query_mask, targets, query, _BLIND)
    read = _owners(owners, key_mask, sources, key, _UNREAD)
    # What fills up the end is seen by nobody if nobody sees later positions.
    if owns is None and key.shape[1] > sources and not causal:
        owns = jnp.zeros(query.shape[:2], jnp.int32)
    if owns is not None or read is not None:
        zeros = [jnp.zeros(x.shape[:2], jnp.int32) for x in (query, key)]
        owns = zeros[0] if owns is None else owns
        read = zeros[1] if read is None else read
        read = jnp.where(jnp.arange(key.shape[1]) < sources, read, _UNREAD)
    out, log = _attend(ring, query, key, value, owns, read)
    out = out[:, :targets]
    if owns is None:
        return out
    mean = value[:, :sources].mean(axis=1, keepdims=True)
    mean = jnp.repeat(mean, query.shape[2] // key.shape[2], 2)
    found = log[:, :, :targets].swapaxes(1, 2)[..., None] > LOWEST / 2
    return jnp.where(found, out, mean)


def _make_ring(query, key, seen: Seen, cudnn: bool) -> Ring:
    division = sequence_division()
    assert division is not None  # `ring_fits`
    mesh, rows, axis, others = division
    parts = math.prod(mesh.shape[name] for name in rows)
    rows = rows if rows and query.shape[0] % parts == 0 else None
    heads = math.prod(mesh.shape[name] for name in others)
    heads = others if heads > 1 and key.shape[2] % heads == 0 else None
    return Ring(mesh, rows, heads, axis, cudnn, seen)


def _fill(ring: Ring, x):
    """Positions filled up to a multiple: long rows for pieces of blocks.

    cuDNN's kernel has no gradient of odd lengths.
    """
    unit = ring.size * (2 if ring.zigzag else 1)
    unit *= 128 if x.shape[1] >= QUERIES * unit else _CUDNN_UNIT if ring.cudnn else 1
    missing = -x.shape[1] % unit
    return jnp.pad(x, ((0, 0), (0, missing), (0, 0), (0, 0))) if missing else x


def _owners(owners, mask, count: int, like, other: int):
    """``[batch, positions]``, or ``None`` if all see each other."""
    if owners is None and mask is None:
        return None
    numbers = jnp.zeros(mask.shape, jnp.int32) if owners is None else owners
    if mask is not None:
        numbers = jnp.where(mask, numbers, other)
    numbers = jnp.broadcast_to(numbers, (like.shape[0], count))
    filling = ((0, 0), (0, like.shape[1] - count))
    return jnp.pad(numbers, filling, constant_values=other)


def _attend(ring: Ring, query, key, value, owns, read) -> Any:
    """What queries read, and the logs ``[batch, heads, targets]``.

    Both are computed outside of the function with the rule for the gradient, where the
    policies of ``jax.checkpoint`` see their name.
    """
    arrays, kinds = _arguments(query, key, value, owns, read)
    run = ring.spread(_attend_part, kinds, "xl")
    out, log = run(*map(lax.stop_gradient, arrays))
    out, log = checkpoint_name(out, KEPT), checkpoint_name(log, KEPT)
    return _with_gradient(ring, query, key, value, owns, read, out, log), log


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _with_gradient(ring: Ring, query, key, value, owns, read, out, log) -> Any:
    """What queries read, with the gradient of that."""
    return out


def _backward(ring, residuals, slope):
    *arrays, out, log = residuals
    arrays, kinds = _arguments(*arrays)
    back = ring.spread(_differentiate_part, f"xlx{kinds}", "xxx")
    return *back(out, log, slope, *arrays), None, None, None, None


_with_gradient.defvjp(lambda ring, *arrays: (arrays[5], arrays), _backward)


def _arguments(query, key, value, owns, read):
    arrays, kinds = (query, key, value), "xxx"
    return (arrays, kinds) if owns is None else ((*arrays, owns, read), f"{kinds}oo")


# ---------------------------------------------------------------------- of one device
def _attend_part(ring: Ring, query, key, value, owns=None, read=None):
    own = _Turn(ring, query, key)
    query, key, value, owns, read = map(own.enter, (query, key, value, owns, read))
    wide = jnp.promote_types(query.dtype, jnp.float32)
    out = jnp.zeros(query.shape, wide)
    log = jnp.full((query.shape[0], query.shape[2], query.shape[1]), LOWEST, wide)

    def meet(step, read_so_far, other):
        def block(form, q, k, read_so_far):
            out, log = read_so_far
            new, sums = own.attend(form, *own.block(step, q, k, (query, owns), other))
            before = own.piece(log, q, 2)
            total = jnp.logaddexp(before, sums)
            old = own.piece(out, q, 1) * _weight(before, total)
            out = own.put(out, old + new * _weight(sums, total), q, 1)
            return out, own.put(log, total, q, 2)

        return own.each_block(step, block, read_so_far, owns, other[2])

    def turn(carry, step):
        read_so_far, other = carry
        return (meet(step, read_so_far, other), own.send(other)), None

    steps = ring.steps(key.shape[1])
    carry, _ = turn(((out, log), (key, value, read)), 0)
    (out, log), _ = carry
    if steps > 1:
        carry, _ = lax.scan(turn, carry, jnp.arange(1, steps - 1))
        out, log = meet(steps - 1, *carry)
    return own.leave(out.astype(query.dtype), 1), own.leave(log, 2)


def _differentiate_part(ring: Ring, out, log, slope, query, key, value, *owners):
    own = _Turn(ring, query, key)
    owns, read = owners or (None, None)
    out, slope, query, key, value, owns, read = map(
        own.enter, (out, slope, query, key, value, owns, read)
    )
    log = own.enter(log, 2)
    zeros = tuple(jnp.zeros(x.shape, log.dtype) for x in (query, key, value))

    def turn(carry, step):
        query_slope, other, slopes = carry

        def block(form, q, k, gradients):
            parts = own.block(step, q, k, (query, owns), other)
            sums = own.piece(log, q, 2)
            beside = sums, own.piece(out, q, 1), own.piece(slope, q, 1)
            new = own.differentiate(form, *parts, *beside)
            pairs = zip(gradients, new, (q, k, k), strict=True)
            return tuple(own.add(old, x, at, 1) for old, x, at in pairs)

        gradients = query_slope, *slopes
        gradients = own.each_block(step, block, gradients, owns, other[2])
        return (gradients[0], own.send(other), own.send(gradients[1:])), None

    carry, _ = turn((zeros[0], (key, value, read), zeros[1:]), 0)
    steps = ring.steps(key.shape[1])
    (query_slope, _, slopes), _ = lax.scan(turn, carry, jnp.arange(1, steps))
    slopes = own.send(slopes, ring.size - steps)  # home
    both = zip((query_slope, *slopes), (query, key, value), strict=True)
    return tuple(own.leave(x.astype(like.dtype), 1) for x, like in both)


def _weight(part, total):
    """``[batch, targets, heads, 1]``: the share of a part in all that was read."""
    return jnp.exp(part - total).swapaxes(1, 2)[..., None]


class _Span(NamedTuple):
    """Positions of a device, from a start among its own on."""

    start: Any
    size: int


class _Turn:
    """One device of the ring: its pieces, and what it meets."""

    def __init__(self, ring: Ring, query, key):
        self.ring, self.place = ring, lax.axis_index(ring.axis)
        self.count = 2 if ring.zigzag else 1
        self.targets = query.shape[1] // self.count
        self.sources = key.shape[1] // self.count

    # ------------------------------------------------------------------ parts
    def enter(self, x: Any, axis: int = 1) -> Any:
        """A part of positions in order, as the pieces of this device."""
        if x is None or not self.ring.zigzag:
            return x
        even, odd = jnp.split(x, 2, axis)
        even = lax.ppermute(even, self.ring.axis, self._places(0))
        odd = lax.ppermute(odd, self.ring.axis, self._places(1))
        return self._in_order(even, odd, axis)

    def leave(self, x, axis: int):
        """Pieces of this device, as its part of positions in order."""
        if not self.ring.zigzag:
            return x
        even, odd = self._order(*jnp.split(x, 2, axis))
        back = [[(b, a) for a, b in self._places(parity)] for parity in (0, 1)]
        even = lax.ppermute(even, self.ring.axis, back[0])
        odd = lax.ppermute(odd, self.ring.axis, back[1])
        return jnp.concatenate([even, odd], axis)

    def _places(self, parity: int) -> list[tuple[int, int]]:
        """Which device each one's first or second piece of positions goes to."""
        size = self.ring.size
        pieces = ((at, 2 * at + parity) for at in range(size))
        return [(at, min(piece, 2 * size - 1 - piece)) for at, piece in pieces]

    def _order(self, even, odd):
        """Swapped on odd devices, whose first piece is an odd one."""
        is_even = self.place % 2 == 0
        return jnp.where(is_even, even, odd), jnp.where(is_even, odd, even)

    def _in_order(self, even, odd, axis: int):
        return jnp.concatenate(self._order(even, odd), axis)

    def send(self, tree, times: int = 1):
        """To the device that comes so many places later."""
        size = self.ring.size
        places = [(at, (at + times) % size) for at in range(size)]
        return jax.tree.map(lambda x: lax.ppermute(x, self.ring.axis, places), tree)

    def piece(self, x, at: _Span, axis: int):
        """Some positions of an array of this device."""
        return lax.dynamic_slice_in_dim(x, at.start, at.size, axis)

    def put(self, x, new, at: _Span, axis: int):
        """An array of this device with new values of some positions."""
        return lax.dynamic_update_slice_in_dim(x, new, at.start, axis)

    def add(self, x, new, at: _Span, axis: int):
        return self.put(x, self.piece(x, at, axis) + new, at, axis)

    # ------------------------------------------------------------------ blocks
    def _starts(self, step, q: _Span, k: _Span):
        """The positions of the first query and the first key of a block."""

        def start(place, at, size):
            if not self.ring.zigzag:
                return place * size + at
            piece = jnp.where(at < size, place, 2 * self.ring.size - 1 - place)
            return size * piece + at % size

        other = (self.place - step) % self.ring.size
        firsts = start(self.place, q.start, self.targets)
        return firsts, start(other, k.start, self.sources)

    def block(self, step, q: _Span, k: _Span, own, other):
        """Query, key, value and both sides of a block."""
        (query, owns), (key, value, read) = own, other
        first, start = self._starts(step, q, k)
        if owns is not None:
            owns, read = self.piece(owns, q, 1), self.piece(read, k, 1)
        arrays = self.piece(query, q, 1), self.piece(key, k, 1), self.piece(value, k, 1)
        return *arrays, Side(first, owns), Side(start, read)

    def attend(self, form: str, query, key, value, *sides):
        """`attend_block` in one of the forms of a block: see `each_block`."""
        if form == "masked":
            return attend_block(self.ring.seen, query, key, value, *sides)
        seen = self._visible(form)
        if self.ring.cudnn:
            return attend_block_by_cudnn(seen, query, key, value)
        return attend_block(seen, query, key, value, *_TOGETHER)

    def differentiate(self, form: str, query, key, value, *beside):
        """`differentiate_block` in one of the forms of a block."""
        *sides, log, out, slope = beside
        seen, arrays = self._visible(form), (query, key, value)
        if self.ring.cudnn and form != "masked":
            return differentiate_block_by_cudnn(seen, *arrays, log, out, slope)
        sides = sides if form == "masked" else _TOGETHER
        return differentiate_block(seen, *arrays, *sides, log, out, slope)

    def _visible(self, form: str) -> Seen:
        """What is seen in a block of a form."""
        if form == "whole":
            return self.ring.seen._replace(causal=False, window=None)
        return self.ring.seen

    def each_block(self, step, block, carry, owns, read):
        """The carry after all blocks of a step that some query sees.

        Blocks are "whole", where each query sees each key; "diagonal", where queries
        and keys begin together; or "masked". Where positions alone say which, that is
        known now; windows and owners say it when the program runs, tile by tile.
        """
        blocks = self._blocks(step) if owns is None else None
        if blocks is None:
            which = functools.partial(self._form, step, owns=owns, read=read)
            return self._each_tile(step, block, which, carry)
        for queries, keys, form in blocks:
            q = _Span(queries * self.targets, self.targets)
            k = _Span(keys * self.sources, self.sources)
            carry = block(form, q, k, carry)
        return carry

    def _each_tile(self, step, block, which, carry):
        """The carry after those tiles of pieces that are near enough."""
        seen, pairs = self.ring.seen, jnp.asarray([(0, 0), (1, 0), (1, 1)])
        height, width = _tile(self.targets), _tile(self.sources)
        rows, count = self.targets // height, self.sources // width
        diagonal = ["diagonal"] if seen.causal else []
        forms = ["masked", "whole", *diagonal]

        def row(carry, number):
            queries, keys = pairs[number // rows]
            at = _Span(queries * self.targets + number % rows * height, height)
            k = _Span(keys * self.sources, self.sources)
            first, start = self._starts(step, at, k)
            ahead = first - start
            low, high = 0, count
            if seen.window is not None:
                low = jnp.clip((ahead - seen.window + 1) // width, 0, count)
                high = jnp.clip(
                    (ahead + height + seen.window - 2) // width + 1, 0, count
                )
            if seen.causal:
                high = jnp.clip((ahead + height - 1) // width + 1, 0, count)

            def tile(number, carry):
                other = _Span(k.start + number * width, width)
                calls = [functools.partial(block, form, at, other) for form in forms]
                keep = [lambda carry: carry, *calls]
                return lax.switch(which(at, other), keep, carry)

            return lax.fori_loop(low, high, tile, carry), None

        turns = rows * (len(pairs) if self.ring.zigzag else 1)
        carry, _ = lax.scan(row, carry, jnp.arange(turns))
        return carry

    def _blocks(self, step) -> list[tuple[Any, Any, str]] | None:
        """Which pieces of queries and keys meet, and in which form; None if unknown."""
        seen, own = self.ring.seen, isinstance(step, int) and step == 0
        if seen.window is not None:  # causal ones are known to cuDNN's kernel
            known = own and seen.causal and self.ring.cudnn
            return [(0, 0, "diagonal")] if known else None
        if not self.ring.zigzag:
            return [(0, 0, "whole")]
        if own:
            return [(0, 0, "diagonal"), (1, 0, "whole"), (1, 1, "diagonal")]
        # The late piece sees all of each early one; beside that one piece sees the
        # other device's of its kind: early ones have their order, late ones not.
        late = jnp.where((self.place - step) % self.ring.size > self.place, 1, 0)
        return [(1, 0, "whole"), (late, late, "whole")]

    def _form(self, step, q: _Span, k: _Span, owns, read) -> Any:
        """The number of a block's form: 0 skipped, 1 masked, 2 whole, 3 diagonal."""
        seen, (first, start) = self.ring.seen, self._starts(step, q, k)
        last, stop = first + q.size - 1, start + k.size - 1
        some = whole = alike = np.bool_(True)
        if seen.causal:
            some, whole = start <= last, stop <= first
        if seen.window is not None:
            some &= jnp.maximum(first - stop, start - last) < seen.window
            whole &= jnp.maximum(last - start, stop - first) < seen.window
        if owns is not None:
            owns, read = self.piece(owns, q, 1), self.piece(read, k, 1)
            lows, highs, others, tops = (
                owns.min(1),
                owns.max(1),
                read.min(1),
                read.max(1),
            )
            some &= ((lows <= tops) & (others <= highs)).any()
            alike = ((lows == tops) & (others == highs) & (lows == highs)).all()
        number = jnp.where(whole & alike, 2, jnp.where(some, 1, 0))
        if not seen.causal:
            return number
        return jnp.where((first == start) & alike, 3, number)


def _tile(size: int) -> int:
    """Positions of a tile, of which a piece has a whole number."""
    counts = range(max(size // TILE, 1), 0, -1)
    return size // next(n for n in counts if size % (n * _CUDNN_UNIT) == 0 or n == 1)
