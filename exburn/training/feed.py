"""From any data set to chunks of batches on the device."""

from __future__ import annotations

import dataclasses
import math
import queue
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any

import jax
import numpy as np

from exburn.context import path_hash
from exburn.dataset import ArrayDataset, StreamDataset
from exburn.errors import DataError
from exburn.training.plan import balanced, bucket, power_of_two

__all__ = ["ArrayFeed", "Chunk", "Feed", "StreamFeed", "count_steps"]


@dataclasses.dataclass
class Chunk:
    """What one call of a program works on.

    Attributes:
        data: Resident: the whole data set ``[samples, …]``; else ``[k, batch, …]``.
        index: Resident: row numbers ``[k, batch]``; else ``None``.
        count: ``None`` if every step is full; else ``(rows,)``, the real rows of each
            step ``[k]``; or ``(rows, active)`` where a step may hold none, with
            ``active`` telling which do.
        steps: Steps that are not only padding.
        samples: Real rows.
        grouped: Whether the steps are whole groups of accumulated gradients.
    """

    data: Any
    index: Any
    count: Any
    steps: int
    samples: int
    grouped: bool = False


class ArrayFeed:
    """Chunks from arrays: gathered on the device, or on the host by a thread.

    Args:
        dataset: The arrays.
        batch_size: Rows of a step.
        most_steps: Length of a chunk, about; with ``fixed`` exactly.
        shuffle: ``True``, ``False``, or ``"batch"`` to shuffle whole batches only.
        exact_rows: The last, short batch is a chunk of its own, at its own size.
        resident: Whether the arrays live on the device.
        few_shapes: Rounds sizes up, so that data of many sizes share programs.
        fixed: Whether the length was asked for, by a callback or the user.
        steps: Steps of an epoch, if fewer than there are.
        group: Steps whose gradients make one update, if chunks shall be whole groups of
            them; ``most_steps`` is a multiple of it. What does not fill a group, before
            the first one of an epoch and after the last, comes step by step.
        phase: Steps of a group that were done before the first epoch.
    """

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
    ):
        self.dataset, self.shuffle, self.resident = dataset, shuffle, resident
        self.group = group
        self.size = dataset.size
        full = min(batch_size, self.size)
        self.batch_size = full
        if few_shapes and not exact_rows:
            self.batch_size = min(batch_size, power_of_two(full))
        self.steps = math.ceil(self.size / self.batch_size)
        self.steps = min(self.steps, steps) if steps is not None else self.steps
        covered = min(self.steps * self.batch_size, self.size)
        self.samples = covered
        rest = covered - (self.steps - 1) * self.batch_size
        self.tail = rest if exact_rows and rest < self.batch_size else 0
        whole = self.steps - bool(self.tail)
        # Groups of an epoch; there can be one less where epochs begin within a group.
        even = self.steps % group == 0
        groups = max((whole - (-phase % group if even else 0)) // group, 1)
        most = most_steps // group
        self.length = min(groups, most) if fixed else balanced(groups, most)
        if few_shapes:
            self.length = min(bucket(self.length), most)
        chunks = math.ceil(groups / self.length)
        padded = chunks * self.length != groups or not even
        self.length *= group
        short = rest < self.batch_size and not self.tail
        shared = few_shapes and not exact_rows
        self.counted = padded or short or shared
        self.padded = padded or shared
        self._whole = whole
        self._device: Any = None

    @property
    def facts(self) -> dict[str, Any]:
        """What the batches of an epoch depend on, besides seed and epoch."""
        names = ("size", "batch_size", "steps", "shuffle")
        return {name: getattr(self, name) for name in names}

    def position(self, *, begin: bool) -> None:
        """Every epoch begins anew: there is no position to note."""

    def epoch(
        self, seed: int, epoch: int, phase: int = 0, start: int = 0
    ) -> Generator[Chunk, None, None]:
        """The epoch's chunks; the order is a function of seed and epoch alone.

        Args:
            seed, epoch: What the order depends on.
            phase: Steps of a group of accumulated gradients that were done before it.
            start: Steps of the epoch to leave out: a resumed run has done them.
        """
        rows = self._order(seed, epoch)
        if self.resident:
            yield from self._resident(rows, phase, start)
        else:
            yield from prefetch(lambda: self._streamed(rows, phase, start))

    def _order(self, seed: int, epoch: int) -> np.ndarray:
        n, b = self.size, self.batch_size
        if not self.shuffle:
            return np.arange(n, dtype=np.int32)
        key = [seed, path_hash("shuffle", epoch)]
        rng = np.random.Generator(np.random.Philox(key=key))
        if self.shuffle == "batch":
            blocks = rng.permutation(n // b)
            order = (blocks[:, None] * b + np.arange(b)).reshape(-1)
            return np.concatenate([order, np.arange(n // b * b, n)]).astype(np.int32)
        return rng.permutation(n).astype(np.int32)

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

    def _blocks(
        self, rows: np.ndarray, phase: int, begin: int
    ) -> Iterator[tuple[np.ndarray, Any, int, int, bool]]:
        """(row numbers [k, batch], count [k] or None, steps, samples, grouped)."""
        b = self.batch_size
        for start, steps, k, grouped in self._pieces(phase, begin):
            part = rows[start * b : (start + steps) * b]
            if not self.counted:
                yield part.reshape(k, b), None, steps, len(part), grouped
                continue
            block = np.full(k * b, rows[0], np.int32)
            block[: len(part)] = part
            count = np.clip(len(part) - np.arange(k) * b, 0, b).astype(np.int32)
            padded = self.padded and grouped == (self.group > 1)
            count = (count, count > 0) if padded else (count,)
            yield block.reshape(k, b), count, steps, len(part), grouped
        if self.tail and begin <= self._whole:
            part = rows[self._whole * b : self._whole * b + self.tail]
            yield part[None], None, 1, len(part), False

    def _resident(self, rows: np.ndarray, phase: int, begin: int) -> Iterator[Chunk]:
        if self._device is None:
            self._device = jax.tree.map(jax.device_put, self.dataset.tree)
        for index, count, steps, samples, grouped in self._blocks(rows, phase, begin):
            index, count = jax.device_put((index, count))
            yield Chunk(self._device, index, count, steps, samples, grouped)

    def _streamed(self, rows: np.ndarray, phase: int, begin: int) -> Iterator[Chunk]:
        ordered = not self.shuffle
        for index, count, steps, samples, grouped in self._blocks(rows, phase, begin):
            flat = index.reshape(-1)
            if ordered and samples == len(flat):  # consecutive rows: a view, no copy
                part = slice(int(flat[0]), int(flat[0]) + samples)
                data = jax.tree.map(lambda v, part=part: v[part], self.dataset.tree)
            else:
                data = self.dataset.take(flat)
            shape = index.shape
            data = jax.tree.map(
                lambda v, s=shape: jax.device_put(v.reshape(s + v.shape[1:])), data
            )
            yield Chunk(data, None, jax.device_put(count), steps, samples, grouped)


class StreamFeed:
    """Chunks from an iterable of batches, stacked by a thread ahead of the device.

    Args:
        dataset: The source.
        most_steps: Longest chunk.
        steps: Steps of an epoch; by default until the source ends.
        exact_rows: Short batches run at their own size instead of padded.
        seed: Seed of the source's own shuffling, if it has any.
        group: As for ``ArrayFeed``.
    """

    def __init__(
        self,
        dataset: StreamDataset,
        most_steps: int,
        *,
        steps: int | None = None,
        exact_rows: bool = False,
        seed: int = 0,
        group: int = 1,
    ):
        self.dataset, self.exact_rows, self.seed = dataset, exact_rows, seed
        self.steps = steps if steps is not None else dataset.batches
        most = most_steps if self.steps is None else min(most_steps, self.steps)
        self.length, self.group = max(most // group, 1) * group, group
        self.batch_size, self.samples = dataset.batch_size, None
        self.resident, self._limit = False, steps
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
        self, seed: int, epoch: int, phase: int = 0, start: int = 0
    ) -> Generator[Chunk, None, None]:
        """The epoch's chunks, but for the first ``start`` steps.

        With ``steps``, the source goes on where it stopped.
        """
        self._begun = self._position
        yield from prefetch(lambda: self._chunks(epoch, phase, start))

    def _batches(self, epoch: int) -> Iterator[tuple]:
        if self._limit is None:
            source = self.dataset.iterate(epoch, self.seed)
            yield from source
            return
        for done in range(self._limit):
            batch = self._next(epoch)
            if batch is None:
                raise DataError(
                    "fit",
                    f"the data ended after {done} of {self._limit} steps of an epoch",
                    hint="Lower steps_per_epoch, or let the source repeat.",
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

    def _chunks(self, epoch: int, phase: int, start: int) -> Iterator[Chunk]:
        done = 0
        for batches, size, length in self._pieces(epoch, phase):
            skipped = min(max(start - done, 0), len(batches))
            done += len(batches)
            if not skipped:
                yield self._stack(batches, size, length)
                continue
            for batch in batches[skipped:]:  # another chunk than before: step by step
                yield self._stack([batch], size, 1)

    def _pieces(self, epoch: int, phase: int) -> Iterator[tuple[list[tuple], int, int]]:
        """(batches, rows of a batch, steps with padding) of each chunk."""
        held: list[tuple] = []
        size, shape = 0, None
        lead = -phase % self.group  # steps that end the group begun before
        for batch in self._batches(epoch):
            rows = _length(batch)
            now = _inner_shapes(batch)
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

    def _stack(self, batches: list[tuple], size: int, length: int) -> Chunk:
        """Short batches are filled with their first row, missing steps likewise."""
        counts = [_length(b) for b in batches]
        full = self.exact_rows
        filled = [
            b if c == size else _fill(b, size)
            for b, c in zip(batches, counts, strict=True)
        ]
        length = len(batches) if full else length
        filled += [filled[0]] * (length - len(batches))
        data = jax.tree.map(lambda *v: jax.device_put(np.stack(v)), *filled)
        count = None
        if not full:
            count = np.zeros(length, np.int32)
            count[: len(counts)] = counts
            count = jax.device_put((count, count > 0))
        grouped = self.group > 1 and length > 1
        return Chunk(data, None, count, len(batches), sum(counts), grouped)


Feed = ArrayFeed | StreamFeed


def count_steps(dataset: Any, batch_size: int, steps: int | None) -> int | None:
    """Steps of one epoch, as far as they are known before it runs."""
    if steps is not None:
        return steps
    if isinstance(dataset, StreamDataset):
        return dataset.batches
    return -(-dataset.size // batch_size)


def _length(batch: Any) -> int:
    return jax.tree.leaves(batch)[0].shape[0]


def _inner_shapes(batch: Any) -> tuple:
    return tuple(v.shape[1:] for v in jax.tree.leaves(batch))


def _fill(batch: Any, size: int) -> Any:
    return jax.tree.map(
        lambda v: np.concatenate([v, np.repeat(v[:1], size - len(v), axis=0)]), batch
    )


def prefetch(make: Callable[[], Iterator[Any]], depth: int = 2) -> Iterator[Any]:
    """Runs an iterator in a thread, ``depth`` items ahead; passes its errors on."""
    items: queue.Queue = queue.Queue(depth)
    stop = threading.Event()

    def put(item) -> bool:
        while not stop.is_set():
            try:
                items.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work():
        source = make()
        try:
            for item in source:
                if not put((item, None)):
                    break
            else:
                put((None, StopIteration()))
        except BaseException as error:
            put((None, error))
        finally:
            if hasattr(source, "close"):
                source.close()  # type: ignore[attr-defined]

    thread = threading.Thread(target=work, name="exburn-feed", daemon=True)
    thread.start()
    try:
        while True:
            item, error = items.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item
    finally:
        stop.set()
        thread.join()
