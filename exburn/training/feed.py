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
    """

    data: Any
    index: Any
    count: Any
    steps: int
    samples: int


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
    ):
        self.dataset, self.shuffle, self.resident = dataset, shuffle, resident
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
        self.length = max(1, min(whole, most_steps))
        if not fixed:
            self.length = balanced(max(whole, 1), most_steps)
        if few_shapes:
            self.length = min(bucket(self.length), most_steps)
        chunks = math.ceil(whole / self.length)
        padded = chunks * self.length != whole
        short = rest < self.batch_size and not self.tail
        shared = few_shapes and not exact_rows
        self.counted = padded or short or shared
        self.padded = padded or shared
        self._whole = whole
        self._device: Any = None

    def epoch(self, seed: int, epoch: int) -> Generator[Chunk, None, None]:
        """The epoch's chunks; the order is a function of seed and epoch alone."""
        rows = self._order(seed, epoch)
        if self.resident:
            yield from self._resident(rows)
        else:
            yield from prefetch(lambda: self._streamed(rows))

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

    def _blocks(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, Any, int, int]]:
        """(row numbers [k, batch], count [k] or None, steps, samples)."""
        b, k = self.batch_size, self.length
        for start in range(0, self._whole, k):
            steps = min(k, self._whole - start)
            part = rows[start * b : (start + steps) * b]
            if not self.counted:
                yield part.reshape(k, b), None, steps, len(part)
                continue
            block = np.full(k * b, rows[0], np.int32)
            block[: len(part)] = part
            count = np.clip(len(part) - np.arange(k) * b, 0, b).astype(np.int32)
            count = (count, count > 0) if self.padded else (count,)
            yield block.reshape(k, b), count, steps, len(part)
        if self.tail:
            part = rows[self._whole * b : self._whole * b + self.tail]
            yield part[None], None, 1, len(part)

    def _resident(self, rows: np.ndarray) -> Iterator[Chunk]:
        if self._device is None:
            self._device = jax.tree.map(jax.device_put, self.dataset.tree)
        for index, count, steps, samples in self._blocks(rows):
            index, count = jax.device_put((index, count))
            yield Chunk(self._device, index, count, steps, samples)

    def _streamed(self, rows: np.ndarray) -> Iterator[Chunk]:
        ordered = not self.shuffle
        for index, count, steps, samples in self._blocks(rows):
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
            yield Chunk(data, None, jax.device_put(count), steps, samples)


class StreamFeed:
    """Chunks from an iterable of batches, stacked by a thread ahead of the device.

    Args:
        dataset: The source.
        most_steps: Longest chunk.
        steps: Steps of an epoch; by default until the source ends.
        exact_rows: Short batches run at their own size instead of padded.
        seed: Seed of the source's own shuffling, if it has any.
    """

    def __init__(
        self,
        dataset: StreamDataset,
        most_steps: int,
        *,
        steps: int | None = None,
        exact_rows: bool = False,
        seed: int = 0,
    ):
        self.dataset, self.exact_rows, self.seed = dataset, exact_rows, seed
        self.steps = steps if steps is not None else dataset.batches
        self.length = most_steps if self.steps is None else min(most_steps, self.steps)
        self.batch_size, self.samples = dataset.batch_size, None
        self.resident, self._limit = False, steps
        self._iterator: Iterator | None = None

    def epoch(self, seed: int, epoch: int) -> Generator[Chunk, None, None]:
        """The epoch's chunks. With ``steps``, the source goes on where it stopped."""
        yield from prefetch(lambda: self._chunks(epoch))

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
            batch = next(self._iterator, None)
            if batch is not None or not self.dataset.reiterable:
                return batch
            self._iterator = None
        return None

    def _chunks(self, epoch: int) -> Iterator[Chunk]:
        held: list[tuple] = []
        size, shape = 0, None
        for batch in self._batches(epoch):
            rows = _length(batch)
            now = _inner_shapes(batch)
            if size and (
                now != shape or rows > size or (rows < size and self.exact_rows)
            ):
                if held:
                    yield self._stack(held, size)
                held, size = [], 0
            if not size:
                size, shape = rows, now
            held.append(batch)
            if len(held) == self.length:
                yield self._stack(held, size)
                held = []
                if self.exact_rows:
                    size = 0
        if held:
            yield self._stack(held, size)

    def _stack(self, batches: list[tuple], size: int) -> Chunk:
        """Short batches are filled with their first row, missing steps likewise."""
        counts = [_length(b) for b in batches]
        full = self.exact_rows
        filled = [
            b if c == size else _fill(b, size)
            for b, c in zip(batches, counts, strict=True)
        ]
        length = len(batches) if full else self.length
        filled += [filled[0]] * (length - len(batches))
        data = jax.tree.map(lambda *v: jax.device_put(np.stack(v)), *filled)
        count = None
        if not full:
            count = np.zeros(length, np.int32)
            count[: len(counts)] = counts
            count = jax.device_put((count, count > 0))
        return Chunk(data, None, count, len(batches), sum(counts))


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
