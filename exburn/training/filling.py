"""A chunk of batches in the making: copied, looked at and sent in parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from exburn.device import chosen_device
from exburn.training.gather import Gatherer

__all__ = ["Filling", "leaves_of"]

# Parts of a chunk on their way at a time. While they are worked on, the thread that
# reads waits: it would keep Python's interpreter to itself.
_UNDER_WAY = 4


class Filling:
    """A chunk that is filled with batches, one after another.

    Its steps are cut into parts. Each is copied, looked at and sent by a thread of its
    own as soon as its batches are there, while the next ones are still read.

    Args:
        gatherer: Whose memory and threads are used.
        like: The first of the batches.
        rows: Of a step; shorter batches are filled up with their first row.
        steps: Most steps of it.
        part: Steps of a part.
        look: Called with a part's rows, its batches, and the number of the first one.
        first: Number of the chunk's first batch.
        split: Whether each part is sent by itself; else the memory as a whole.
        lent: Whether batches have to be copied as soon as they are added.

    Attributes:
        memory: What the batches are copied to, a chunk of each leaf; ``None`` if each
            part is joined in memory of its own.
    """

    def __init__(
        self,
        gatherer: Gatherer,
        like: tuple,
        rows: int,
        steps: int,
        part: int,
        *,
        look: Callable[[tuple, list[tuple], int], None],
        first: int,
        split: bool,
        lent: bool = False,
    ):
        self.lent, self._split = lent, split
        self.batches: list[tuple] = []
        self.counts: list[int] = []
        self.rows, self.first, self.length = rows, first, steps
        self._gatherer, self._look, self._part = gatherer, look, part
        leaves, self._structure = jax.tree.flatten(like)
        shapes = [(steps, rows, *leaf.shape[1:]) for leaf in leaves]
        self.memory: list[np.ndarray] | None = None
        if lent or not split:
            pairs = zip(shapes, leaves, strict=True)
            self.memory = [gatherer.empty(s, leaf.dtype) for s, leaf in pairs]
        # Of a step.
        self._nbytes = sum(v.nbytes // len(v) for v in leaves) * rows
        self._device = chosen_device()
        self._jobs: list[Future[Any]] = []
        self._begun = 0  # steps whose parts are under way
        self._steps = 0

    def add(self, batch: tuple, rows: int) -> None:
        """The next batch, and how many rows it has."""
        self.batches.append(self._kept(batch, rows) if self.lent else batch)
        self.counts.append(rows)
        if len(self.batches) - self._begun == self._part:
            self._begin(len(self.batches))

    def finish(self, steps: int) -> None:
        """No batch follows: missing steps are filled with the first one.

        Args:
            steps: Of the chunk; fewer than there are batches, if some are left out.
        """
        if self._begun > steps:  # rare: once more, without those
            self._jobs, self._begun, self._part = [], 0, steps
        while self._begun < steps:
            self._begin(min(self._begun + self._part, steps))
        self._steps = steps

    def result(self) -> Any:
        """The chunk's data on the device, ``[steps, rows, …]``, or a list of parts.

        Raises:
            ExBurnError: ``look`` refused a part.
        """
        parts = [job.result() for job in self._jobs]
        if self.memory is not None and not self._split:
            return jax.device_put(self._tree([m[: self._steps] for m in self.memory]))
        return parts if len(parts) > 1 else parts[0]

    def _begin(self, stop: int) -> None:
        start, self._begun = self._begun, stop
        job = self._gatherer.submit(
            (stop - start) * self._nbytes, self._fill, start, stop
        )
        self._jobs.append(job)
        if len(self._jobs) >= _UNDER_WAY:
            self._jobs[-_UNDER_WAY].exception()  # waits

    def _kept(self, batch: tuple, rows: int) -> tuple:
        """The batch in this chunk's memory."""
        assert self.memory is not None
        step, kept = len(self.batches), []
        for memory, leaf in zip(self.memory, leaves_of(batch), strict=True):
            memory[step, :rows] = leaf
            memory[step, rows:] = leaf[:1]
            kept.append(memory[step, :rows])
        return self._tree(kept)

    def _fill(self, start: int, stop: int) -> Any:
        steps = self._steps_kept if self.lent else self._steps_joined
        rows, steps = steps(start, stop)
        if batches := self.batches[start:stop]:
            self._look(self._tree(rows), batches, self.first + start)
        if not self._split:
            return None
        with jax.default_device(self._device):
            return jax.device_put(self._tree(steps))

    def _steps_kept(self, start: int, stop: int) -> tuple[list, list]:
        assert self.memory is not None
        for memory in self.memory:
            memory[max(len(self.batches), start) : stop] = memory[:1]
        steps = [memory[start:stop] for memory in self.memory]
        return [v.reshape(-1, *v.shape[2:]) for v in steps], steps

    def _steps_joined(self, start: int, stop: int) -> tuple[list, list]:
        """Rows of the batches, and the same cut into steps: in new memory."""
        batches, counts = self.batches[start:stop], self.counts[start:stop]
        leaves = [leaves_of(batch) for batch in batches]
        for index, rows in enumerate(counts):
            if rows < self.rows:
                leaves[index] = [_filled(v, self.rows) for v in leaves[index]]
        if missing := stop - start - len(batches):
            spare = [_filled(v, self.rows) for v in leaves_of(self.batches[0])]
            leaves += [spare] * missing
        rows = [_joined(arrays) for arrays in zip(*leaves, strict=True)]
        steps = [v.reshape(stop - start, self.rows, *v.shape[1:]) for v in rows]
        for memory, part in zip(self.memory or (), steps, strict=False):
            memory[start:stop] = part
        return rows, steps

    def _tree(self, leaves: list[np.ndarray]) -> Any:
        return self._structure.unflatten(leaves)


def leaves_of(batch: tuple) -> list[np.ndarray]:
    """The arrays of a batch; quickly, if they are its parts."""
    parts = [part for part in batch if part is not None]
    plain = all(type(part) is np.ndarray for part in parts)
    return parts if plain else jax.tree.leaves(batch)


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The rows of all, in memory of their own.

    One call copies them all without the interpreter. ``np.concatenate`` takes it after
    each array again: beside a thread that computes in Python that took 100 times as
    long, for to get it can take 5 ms.
    """
    first = arrays[0]
    rows = sum(len(array) for array in arrays)
    contiguous: Any = [np.ascontiguousarray(array) for array in arrays]
    memory = b"".join(contiguous)
    return np.ndarray((rows, *first.shape[1:]), first.dtype, buffer=memory)


def _filled(array: np.ndarray, rows: int) -> np.ndarray:
    missing = rows - len(array)
    if not missing:
        return array
    return np.concatenate([array, np.repeat(array[:1], missing, axis=0)])
