"""Chunks of batches from an iterable of batches."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from exburn.dataset import StreamDataset
from exburn.errors import DataError
from exburn.training.chunk import Chunk
from exburn.training.gather import Gatherer
from exburn.training.plan import balanced
from exburn.training.prefetch import Prefetch

__all__ = ["StreamFeed"]

# What says how many steps there are.
_STEPS = {"fit": "steps_per_epoch", "fit (validation data)": "validation_steps"}


class StreamFeed:
    """Chunks from an iterable of batches, made and sent by threads ahead of the device.

    Args:
        dataset: The source.
        most_steps: Longest chunk.
        steps: Steps of an epoch; by default until the source ends.
        exact_rows: Short batches run at their own size instead of padded.
        seed: Seed of the source's own shuffling, if it has any; ``None`` for none.
        group, fixed: As for ``ArrayFeed``.
    """

    def __init__(
        self,
        dataset: StreamDataset,
        most_steps: int,
        *,
        steps: int | None = None,
        exact_rows: bool = False,
        seed: int | None = None,
        group: int = 1,
        fixed: bool = False,
    ):
        self.dataset, self.exact_rows, self.seed = dataset, exact_rows, seed
        self.steps = steps if steps is not None else dataset.batches
        most = max(most_steps // group, 1)
        if self.steps is not None:
            groups = max(self.steps // group, 1)
            most = min(groups, most) if fixed else balanced(groups, most)
        self.length, self.group = most * group, group
        # Whether a chunk may have empty steps: a step then has to choose a state.
        self._padded = self.steps is None or self.steps % self.length > 0
        self.batch_size, self.samples = dataset.batch_size, None
        self.resident, self.reason = False, "they come as a stream of batches"
        self._limit = steps
        self._iterator: Iterator | None = None
        # Where a source that goes on through the epochs is: opened for which epoch, and
        # how many batches were taken since; now, and when the last epoch began.
        self._position = self._begun = (0, 0)

    @property
    def facts(self) -> dict[str, Any]:
        """What the batches of an epoch depend on, as far as it is known."""
        return {"batch_size": self.batch_size, "steps": self.steps}

    def position(self, *, begin: bool) -> list[int] | None:
        """Where the source is, or was when the epoch began; for ``go_to``."""
        if self._limit is None:
            return None
        return list(self._begun if begin else self._position)

    def go_to(self, position: list[int] | None) -> None:
        """Takes batches from the source until it is where another one was."""
        if position is None or self._limit is None:
            return
        opened, taken = position
        self._position = (opened, 0)
        for _ in range(taken):
            self._next(opened)

    def epoch(
        self,
        seed: int,
        epoch: int,
        phase: int = 0,
        start: int = 0,
        *,
        last: bool = True,
    ) -> Generator[Chunk, None, None]:
        """The epoch's chunks, but for the first ``start`` steps.

        With ``steps``, the source goes on where it stopped. Nothing is read for the
        next epoch before that begins: a callback may change the source, or end the run.
        """
        self._begun = self._position
        over = threading.Event()  # the reader looks at it after every batch
        # One thread reads, one stacks, and one checks and sends to the device.
        stacking = Prefetch(lambda: self._chunks(epoch, phase, start, over), depth=1)
        with (
            stacking as stacked,
            Prefetch(lambda: self._sent(stacked), depth=1) as chunks,
        ):
            try:  # `yield from` would close them, and wait, before the reader knows
                for chunk in chunks:  # noqa: UP028
                    yield chunk
            finally:
                over.set()

    def close(self) -> None:
        """Nothing is held for a later epoch."""

    def _batches(self, epoch: int) -> Iterator[tuple]:
        if self._limit is None:
            source = self.dataset.iterate(epoch, self.seed)
            yield from source
            return
        for done in range(self._limit):
            batch = self._next(epoch)
            if batch is None:
                op = self.dataset.op
                raise DataError(
                    op,
                    f"the data ended after {done} of {self._limit} steps of an epoch",
                    hint=f"Lower {_STEPS.get(op, 'steps')}, or let the source repeat.",
                )
            yield batch

    def _next(self, epoch: int) -> tuple | None:
        for _ in range(2):
            if self._iterator is None:
                self._iterator = iter(self.dataset.iterate(epoch, self.seed))
                if self.dataset.reiterable:
                    self._position = (epoch, 0)
            batch = next(self._iterator, None)
            if batch is not None or not self.dataset.reiterable:
                self._position = (self._position[0], self._position[1] + 1)
                return batch
            self._iterator = None
        return None

    def _chunks(
        self, epoch: int, phase: int, start: int, over: threading.Event
    ) -> Iterator[tuple[Chunk, list[tuple]]]:
        """Each chunk on the host, and the batches that it was made of."""
        done = 0
        reading = Prefetch(lambda: self._pieces(epoch, phase, over), depth=1)
        with reading as pieces, Gatherer() as gatherer:
            for batches, size, length in pieces:
                skipped = min(max(start - done, 0), len(batches))
                done += len(batches)
                if not skipped:
                    yield self._stack(gatherer, batches, size, length)
                    continue
                for batch in batches[skipped:]:  # another chunk than before: one by one
                    yield self._stack(gatherer, [batch], size, 1)

    def _pieces(
        self, epoch: int, phase: int, over: threading.Event
    ) -> Iterator[tuple[list[tuple], int, int]]:
        """(batches, rows of a batch, steps with padding) of each chunk."""
        held: list[tuple] = []
        size, shape = 0, None
        lead = -phase % self.group  # steps that end the group begun before
        for batch in self._batches(epoch):
            if over.is_set():
                return
            leaves = _leaves(batch)
            rows = leaves[0].shape[0]
            now = [(leaf.shape[1:], leaf.dtype) for leaf in leaves]
            if size and (
                now != shape or rows > size or (rows < size and self.exact_rows)
            ):
                yield from self._flush(held, size)
                lead = lead or -len(held) % self.group
                held, size = [], 0
            if not size:
                size, shape = rows, now
            if lead:
                yield [batch], size, 1
                lead -= 1
                continue
            held.append(batch)
            if len(held) == self.length:
                yield from self._flush(held, size)
                held = []
                if self.exact_rows:
                    size = 0
        yield from self._flush(held, size)

    def _flush(
        self, held: list[tuple], size: int
    ) -> Iterator[tuple[list[tuple], int, int]]:
        """Whole groups as one chunk, and what is left one by one."""
        whole = len(held) // self.group * self.group
        if whole:
            yield held[:whole], size, self.length
        for batch in held[whole:]:
            yield [batch], size, 1

    def _stack(
        self, gatherer: Gatherer, batches: list[tuple], size: int, length: int
    ) -> tuple[Chunk, list[tuple]]:
        """Short batches are filled with their first row, missing steps likewise."""
        counts = [_length(b) for b in batches]
        full = self.exact_rows
        filled = [
            b if c == size else _fill(b, size)
            for b, c in zip(batches, counts, strict=True)
        ]
        length = len(batches) if full else length
        filled += [filled[0]] * (length - len(batches))
        data = jax.tree.map(lambda *v: gatherer.stack(v), *filled)
        count = None
        if not full:
            rows = np.zeros(length, np.int32)
            rows[: len(counts)] = counts
            padded = self._padded or length > len(counts)
            count = (rows, rows > 0) if padded else (rows,)
        grouped = self.group > 1 and length > 1
        chunk = Chunk(data, None, count, len(batches), sum(counts), grouped)
        return chunk, batches

    def _sent(self, stacked: Iterable[tuple[Chunk, list[tuple]]]) -> Iterator[Chunk]:
        """The chunks on the device, once their values were looked at."""
        first = 0
        with Gatherer() as gatherer:
            for chunk, batches in stacked:
                self._check(gatherer, chunk.data, batches, first)
                first += len(batches)
                data, count = jax.device_put((chunk.data, chunk.count))
                yield dataclasses.replace(chunk, data=data, count=count)

    def _check(
        self, gatherer: Gatherer, data: Any, batches: list[tuple], first: int
    ) -> None:
        flat = jax.tree.map(lambda v: v.reshape(-1, *v.shape[2:]), data)

        def look(start: int, stop: int) -> None:
            rows = jax.tree.map(lambda v: v[start:stop], flat)
            self.dataset.check_rows(rows, batches, first)

        leaves = jax.tree.leaves(flat)
        gatherer.share(look, len(leaves[0]), sum(v.nbytes for v in leaves))


def _length(batch: Any) -> int:
    return _leaves(batch)[0].shape[0]


def _leaves(batch: tuple) -> list[np.ndarray]:
    """The arrays of a batch; quickly, if they are its parts."""
    parts = [part for part in batch if part is not None]
    plain = all(type(part) is np.ndarray for part in parts)
    return parts if plain else jax.tree.leaves(batch)


def _fill(batch: Any, size: int) -> Any:
    return jax.tree.map(
        lambda v: np.concatenate([v, np.repeat(v[:1], size - len(v), axis=0)]), batch
    )
