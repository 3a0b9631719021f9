"""Chunks of batches from arrays."""

from __future__ import annotations

import contextlib
import functools
import math
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from exburn.core.random_keys import path_hash
from exburn.data import ArrayDataset
from exburn.errors import ExBurnError
from exburn.module.building import spec_like
from exburn.runtime.device import chosen_platform
from exburn.runtime.threads import Prefetch
from exburn.runtime.transfer import device_constant
from exburn.training.feed.chunk import LITTLE, Chunk
from exburn.training.feed.gather import HostGather
from exburn.training.feed.kept_arrays import KeptArrays
from exburn.training.feed.kept_chunks import KeptChunks
from exburn.training.feed.plan import (
    balance_length,
    bucket,
    choose_length,
    power_of_two,
)
from exburn.training.feed.resident_rows import ResidentRows
from exburn.training.placement import OneDevice

_MANY = 1 << 20  # rows whose order takes 15 ms to draw, and 4 MiB
_COMPARED = 16 << 20  # bytes that are compared in less time than threads begin
_FEW = 16  # steps of a chunk whose numbers of rows stay on the device


class ArrayFeed:
    """Chunks from arrays: gathered on the device, or on the host by a thread.

    Args:
        most_steps: Length of a chunk, about; with ``fixed`` exactly.
        shuffle: ``True``, ``False``, or ``"batch"`` to shuffle whole batches only.
        exact_rows: The last, short batch is a chunk of its own, at its own size.
        resident: Whether the arrays live on the device.
        few_shapes: Rounds sizes up, so that data of many sizes share programs.
        fixed: Whether the length was asked for, by a callback or the user.
        steps: Steps of an epoch, if fewer than there are: the next epoch goes on where
            it stopped.
        group: Steps whose gradients make one update, if chunks shall be whole groups of
            them; ``most_steps`` is a multiple of it. What does not fill a group, before
            the first one of an epoch and after the last, comes step by step.
        phase: Steps of a group that were done before the first epoch.
        joined: How many batches a step of evaluation or prediction stands for.
        earlier: Epochs of earlier runs: the first of the shuffled orders is that of the
            one after them.
        first: Number of the first epoch: without shuffling it begins with the first
            row, whatever its number.
        store, owners: As for ``ResidentRows``.
        tries: Whether the first chunk may be one on trial: see ``Chunk.prove``; or all
            chunks, where those stay.
        keeps_chunks: Whether chunks that are not resident stay for the next run, too.

    Attributes:
        on_trial: Whether the next epoch has the chunks that the run before has left.
        is_proven: Whether those were the ones that it should have, once it is over.
    """

    draws = False  # whether steps draw their rows: an epoch has any number of them
    ended = None  # arrays always give an epoch's batches
    is_proven = False

    def __init__(
        self,
        dataset: ArrayDataset,
        batch_size: int,
        most_steps: int,
        *,
        shuffle: bool | str = False,
        exact_rows: bool = False,
        resident: bool = False,
        few_shapes: bool = False,
        fixed: bool = False,
        steps: int | None = None,
        group: int = 1,
        phase: int = 0,
        joined: int = 1,
        reason: str = "",
        earlier: int = 0,
        first: int = 0,
        placement: OneDevice | None = None,
        store: KeptArrays | None = None,
        owners: Sequence[weakref.ref] = (),
        tries: bool = False,
        keeps_chunks: bool = False,
    ):
        self.dataset, self.shuffle, self.resident = dataset, shuffle, resident
        self._placement = placement or OneDevice()
        self.reason, self._passed = reason, earlier if shuffle else -first
        self.group, self.joined = group, joined
        self.size, self._rows_of_one = dataset.size, batch_size // joined
        own = self._placement.own_data  # then sizes are those of all processes
        full = batch_size if own else min(batch_size, self.size)
        self.batch_size = full
        if few_shapes and not exact_rows:
            self.batch_size = min(batch_size, power_of_two(full))
        self.steps = math.ceil(self.size / self.batch_size)
        if steps is not None:
            self.steps = steps if own or self.draws else min(self.steps, steps)
        covered = min(self.steps * self.batch_size, self.size)
        self.samples = covered
        rest = covered - (self.steps - 1) * self.batch_size
        self.tail = rest if exact_rows and rest < self.batch_size else 0
        whole = self.steps - bool(self.tail)
        # Groups of an epoch; there can be one less where epochs begin within a group.
        even = self.steps % group == 0
        groups = max((whole - (-phase % group if even else 0)) // group, 1)
        most = most_steps // group
        self.length = min(groups, most) if fixed else balance_length(groups, most)
        if few_shapes:
            self.length = (
                min(bucket(groups), most) if fixed else choose_length(groups, most)
            )
        chunks = math.ceil(groups / self.length)
        padded = chunks * self.length != groups or not even or own
        self.length *= group
        short = rest < self.batch_size and not self.tail
        many = few_shapes and not exact_rows
        # Rows of a step as programs run it; the last of them may be none.
        self._width = self.batch_size
        if not exact_rows:
            self._width = self._placement.width(self.batch_size)
        self.counted = padded or short or many or self._width > self.batch_size
        self.padded = padded or many
        self._whole = whole
        self._tries = tries
        self._store = (store, owners) if keeps_chunks and store is not None else None
        self.waiting: Callable[[], None] = lambda: None
        self._gatherer = HostGather()
        own = dataset, self._gatherer, self._placement
        self._resident_rows = ResidentRows(*own, store, owners)
        self._ahead: tuple[tuple, Prefetch] | None = None
        self._drawn: tuple[int, int, np.ndarray] | None = None
        self._checked = dataset.check is None
        self.on_trial = tries and keeps_chunks and self._may_try_kept()

    @property
    def own_data(self) -> bool:
        """Whether the rows are this process' own, of several that train together."""
        return self._placement.own_data

    @property
    def facts(self) -> dict[str, Any]:
        """What the batches of an epoch depend on, besides seed and epoch."""
        return order_facts(self, self._passed)

    def position(self, *, begin: bool) -> None:
        """Every epoch begins anew: there is no position to note."""

    def epoch(
        self,
        seed: int,
        epoch: int,
        phase: int = 0,
        start: int = 0,
        *,
        last: bool = True,
    ) -> Generator[Chunk, None, None]:
        """The epoch's chunks; the order is a function of seed and epoch alone.

        Args:
            seed, epoch: What the order depends on.
            phase: Steps of a group of accumulated gradients that were done before it.
            start: Steps of the epoch to leave out: a resumed run has done them.
            last: Whether no epoch follows; else the next one's first chunks are made
                while the device still works on this one. ``close`` drops them.
        """
        if self.resident:
            drawn, self._drawn = self._drawn, None
            if drawn is None or drawn[:2] != (seed, epoch):
                drawn = seed, epoch, self._order(seed, epoch)
            yield from self._resident(drawn[2], phase, start)
            if last and self._passed > 0 and self.size <= _MANY:
                self._order(seed, epoch + 1)  # short runs follow each other, it seems
            if not last:  # while the device still works on this epoch
                self._drawn = seed, epoch + 1, self._order(seed, epoch + 1)
            return
        if self.on_trial:
            yield from self._try_kept(seed, epoch)
            return
        place = (seed, epoch, phase, start)
        alone = last and self.steps <= self.length
        if self._ahead is None and (alone or self._is_little()):
            # At once, by the program's call: there is nothing to overlap.
            yield from self._stream(*place, send=self._store is not None)
            return
        if self._ahead is None or self._ahead[0] != place:
            self._drop_ahead()
            self._ahead = place, self._prefetch(*place)
        (_, chunks), self._ahead = self._ahead, None
        with chunks:
            yield from chunks
        if not last:
            place = (seed, epoch + 1, (phase + self.steps) % self.group, 0)
            self._ahead = place, self._prefetch(*place)

    def _may_try_kept(self) -> bool:
        """Whether all chunks are there that the run before has left."""
        if (chunks := self._kept_chunks()) is None:
            return False
        leaves = jax.tree.leaves(self.dataset.tree)
        blocks = self._blocks(self._order(0, 0), 0, 0)
        return chunks.are_of(
            [
                ((*chunk.index.shape, *leaf.shape[1:]), leaf.dtype.str)
                for chunk in blocks
                for leaf in leaves
            ]
        )

    def _try_kept(self, seed: int, epoch: int) -> Iterator[Chunk]:
        """The chunks that the run before has left, while a thread compares them."""
        chunks, order = self._kept_chunks(), self._order(seed, epoch)
        assert chunks is not None
        hosts = (self._gather(chunk)[1] for chunk in self._blocks(order, 0, 0))
        with contextlib.ExitStack() as stack:
            proof: Future[bool] | None = None
            if self.dataset.nbytes > _COMPARED:
                thread = ThreadPoolExecutor(1, "exburn-proof")
                proof = stack.enter_context(thread).submit(chunks.are_current, hosts)
            data = chunks.all(jax.tree.structure(self.dataset.tree))
            for chunk, arrays in zip(self._blocks(order, 0, 0), data, strict=True):
                count = self._send_count(chunk.count, chunk.index.shape[1])
                chunk.count = self._placement.send_whole(count)
                chunk.data, chunk.index = arrays, None
                yield chunk
            # The device has its work by now.
            self.is_proven = (
                chunks.are_current(hosts) if proof is None else proof.result()
            )

    def order(self, seed: int, epoch: int) -> np.ndarray:
        """Numbers of an epoch's rows, in the order in which its chunks have them."""
        return self._order(seed, epoch)

    def places(self, phase: int = 0, start: int = 0) -> Iterator[Chunk]:
        """An epoch's chunks without data: places in its order, and counts of rows.

        For those who have several orders of the same rows.
        """
        return self._blocks(np.arange(self.samples, dtype=np.int32), phase, start)

    def resident_data(self) -> Any:
        """All rows on the device, where they stay until ``close``."""
        return self._resident_rows.take()[0]

    def _is_little(self) -> bool:
        """Whether a step is made more quickly than a thread would hand it over."""
        nbytes = self.dataset.nbytes // self.size * self.batch_size
        little = self.length == 1 and nbytes <= LITTLE
        return little and chosen_platform() == "cpu"

    def first_specs(self) -> Chunk:
        """The first chunk of an epoch, with specs in the place of data."""
        chunk = next(self._blocks(np.zeros(self.size, np.int32), 0, 0))
        lead = (self.size,) if self.resident else chunk.index.shape
        chunk.data = jax.tree.map(
            lambda v: jax.ShapeDtypeStruct(lead + v.shape[1:], v.dtype),
            self.dataset.tree,
        )
        chunk.index = chunk.index if self.resident else None
        chunk.count = jax.tree.map(spec_like, chunk.count)
        return chunk

    def pop_wait(self) -> float:
        """Seconds spent before the first epoch: none, the arrays are there."""
        return 0.0

    def close(self) -> None:
        """Drops what was made for an epoch that does not come, and ends all threads."""
        self._drop_ahead()
        self._resident_rows.close()
        self._gatherer.close()

    def _drop_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead[1].close()

    def _prefetch(self, seed: int, epoch: int, phase: int, start: int) -> Prefetch:
        return Prefetch(
            lambda: self._stream(seed, epoch, phase, start),
            waiting=lambda: self.waiting(),
        )

    def _order(self, seed: int, epoch: int) -> np.ndarray:
        """Numbers of an epoch's rows; those of one pass through all, or a part of it.

        An epoch of fewer steps goes on where the one before stopped: no row is left out
        for good.
        """
        epoch += self._passed
        if self.samples == self.size:
            return self._pass(seed, epoch)
        start, first = divmod(epoch * self.samples, self.size)
        last = (epoch * self.samples + self.samples - 1) // self.size
        passes = [self._pass(seed, number) for number in range(start, last + 1)]
        return np.concatenate(passes)[first : first + self.samples]

    def _pass(self, seed: int, number: int) -> np.ndarray:
        return row_order(self.size, self.batch_size, self.shuffle, seed, number)

    def _pieces(self, phase: int, start: int) -> Iterator[tuple[int, int, int, bool]]:
        """(first step, steps, length with padding, whether groups) of each chunk.

        The chunks after ``start`` are those that would follow it anyway: other ones
        could differ in the last bit.
        """
        lead = min(-phase % self.group, self._whole)
        end = lead + (self._whole - lead) // self.group * self.group
        for step in range(start, lead):
            yield step, 1, 1, False
        for step in range(lead, end, self.length):
            stop = min(step + self.length, end)
            first = max(step, start)
            while first < stop and (first - lead) % self.group:
                yield first, 1, 1, False
                first += 1
            if first < stop:
                whole = self.padded or first == step
                length = self.length if whole else stop - first
                yield first, stop - first, length, self.group > 1
        for step in range(max(start, end), self._whole):
            yield step, 1, 1, False

    def _blocks(self, rows: np.ndarray, phase: int, begin: int) -> Iterator[Chunk]:
        """The chunks of an epoch, with row numbers in the place of data."""
        b, width = self.batch_size, self._width
        for start, steps, k, grouped in self._pieces(phase, begin):
            part = rows[start * b : (start + steps) * b]
            if not self.counted:
                batches = steps * self.joined
                yield Chunk(None, part.reshape(k, b), None, batches, len(part), grouped)
                continue
            block = np.full((k, b), rows[0], np.int32)
            block.reshape(-1)[: len(part)] = part
            count = np.clip(len(part) - np.arange(k) * b, 0, b).astype(np.int32)
            padded = self.padded and grouped == (self.group > 1)
            count = (count, count > 0) if padded else (count,)
            batches = -(-len(part) // self._rows_of_one)
            if self._placement.own_data:  # which may be fewer than those of others
                batches = steps
            real = None
            if width > b:  # they do not follow one another
                block = np.pad(block, ((0, 0), (0, width - b)), "edge")
                real = count[0].tolist()
            yield Chunk(None, block, count, batches, len(part), grouped, real)
        if self.tail and begin <= self._whole:
            part = rows[self._whole * b : self._whole * b + self.tail]
            yield Chunk(None, part[None], None, 1, len(part))

    def _resident(self, rows: np.ndarray, phase: int, begin: int) -> Iterator[Chunk]:
        for chunk in self._blocks(rows, phase, begin):
            chunk.data, chunk.prove = self._resident_rows.take(
                tries=self._tries, rows=chunk.index
            )
            chunk.count = self._send_count(chunk.count, chunk.index.shape[1])
            yield chunk
        self._resident_rows.finish()

    def _check(self, rows: tuple) -> None:
        """Looks at rows, unless all of them were looked at before."""
        if self._checked or self.dataset.check is None:
            return
        try:
            self.dataset.check(rows)
        except ExBurnError:
            self.dataset.check(self.dataset.tree)  # tells the rows by their own numbers
            raise

    def _stream(
        self, seed: int, epoch: int, phase: int, begin: int, *, send: bool = True
    ) -> Iterator[Chunk]:
        rows, chunks = self._order(seed, epoch), self._kept_chunks()
        blocks = self._blocks(rows, phase, begin)
        with self._gatherer.reusing() as reuse:
            for chunk in blocks:
                width = chunk.index.shape[1]
                host, data, straight = self._gather(chunk)
                count = self._send_count(chunk.count, width)
                if chunks is not None:
                    put = functools.partial(self._placement.send_columns, rows=width)
                    look = functools.partial(self._check, host)
                    data = chunks.send(data, put, look)
                elif send or self._placement.spans_processes:
                    data = self._placement.send_columns(data, width)
                if send and not self._placement.own_data:
                    count = self._placement.send_whole(count)
                if chunks is None:
                    self._check(host)  # while they are on their way
                chunk.data, chunk.index, chunk.count = data, None, count
                yield chunk
                if send and not straight:
                    reuse(host, data)
                del host, data, chunk  # not held while the next one is made
        self._checked = self._checked or self.samples == self.size
        if chunks is not None:
            chunks.end()

    def _gather(self, chunk: Chunk) -> tuple[Any, Any, bool]:
        """Rows of a chunk on the host, the same as batches, and whether they are views.

        They are of this process alone.
        """
        whole, width = chunk.index.shape, chunk.index.shape[1]
        index = chunk.index[:, self._placement.columns(width)]
        flat, shape, samples = index.reshape(-1), index.shape, chunk.samples
        straight = not self.shuffle and shape == whole and samples == len(flat)
        straight = straight and flat[-1] - flat[0] == samples - 1
        host = self._gatherer.take(self.dataset.tree, flat, straight=straight)
        data = jax.tree.map(lambda v: v.reshape(shape + v.shape[1:]), host)
        return host, data, straight

    def _kept_chunks(self) -> KeptChunks | None:
        if self._store is None:
            return None
        own = *self._store, self._gatherer, self._placement
        return KeptChunks(*own, self.dataset.check)

    def _send_count(self, count: Any, rows: int) -> Any:
        """Counts of few steps, which are the same for each epoch, are sent once."""
        if self._placement.own_data:
            return self._placement.send_counts(count, rows)
        if count is None or len(count[0]) > _FEW:
            return count
        return tuple(device_constant(tuple(v.tolist()), v.dtype) for v in count)


def order_facts(feed: Any, passed: int) -> dict[str, Any]:
    """What the order of a feed's batches depends on, besides seed and epoch.

    Args:
        passed: Epochs before the first one; without shuffling, those after it, negated.
    """
    names = ("size", "batch_size", "steps", "shuffle")
    facts = {name: getattr(feed, name) for name in names}
    return facts if feed.shuffle or not passed else facts | {"first": -passed}


def row_order(
    rows: int, batch_size: int, shuffle: bool | str, seed: int, number: int
) -> np.ndarray:
    """The order of the rows in a pass through all of them.

    Example:
        >>> row_order(5, 2, "batch", 0, 0)[-1].item()
        4
    """
    if not shuffle:
        return np.arange(rows, dtype=np.int32)
    draw = _draw_kept if rows <= _MANY else _draw
    return draw(rows, batch_size, shuffle == "batch", seed, number)


def _draw(
    rows: int, batch_size: int, whole: bool, seed: int, number: int
) -> np.ndarray:
    key = [seed, path_hash("shuffle", number)]
    rng = np.random.Generator(np.random.Philox(key=key))
    if whole:
        blocks = rng.permutation(rows // batch_size)
        order = (blocks[:, None] * batch_size + np.arange(batch_size)).reshape(-1)
        rest = np.arange(rows // batch_size * batch_size, rows)
        order = np.concatenate([order, rest])
    else:
        order = rng.permutation(rows)
    order = order.astype(np.int32)
    order.flags.writeable = False
    return order


@functools.lru_cache(maxsize=4)
def _draw_kept(*place: Any) -> np.ndarray:
    """The order that a run to come begins with is drawn at the end of the one before:
    60,000 rows take a millisecond, for which a GPU would wait."""
    return _draw(*place)
