"""A chunk of batches in the making: copied, looked at and sent in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np

from exburn.runtime.device import chosen_device
from exburn.training.feed.chunk import LITTLE
from exburn.training.feed.gather import HostGather

# Parts of a chunk on their way at a time. While they are worked on, the thread that
# reads waits: it would keep Python's interpreter to itself.
_UNDER_WAY = 4


class ChunkBuilder:
    """A chunk that is filled with batches, one after another.

    Each is copied into the chunk's memory before the next one is read: a loader may
    write to the arrays that it gave. The chunk's steps are cut into parts. Each of them
    is looked at and sent by a thread of its own, while the next batches are read.

    Args:
        rows: Of a step; shorter batches are filled up with their first row.
        look: Called with a part's rows, its batches, and the number of the first one.
        split: Whether each part is sent by itself; else the memory as a whole.
        send: Sends ``[steps, rows, …]`` to where programs take it.

    Attributes:
        counts: Rows of each batch.
        memory: What the batches are copied to, a chunk of each leaf.
    """

    def __init__(
        self,
        gatherer: HostGather,
        like: tuple,
        rows: int,
        steps: int,
        part: int,
        *,
        look: Callable[[tuple, Iterator[tuple], int], None],
        first: int,
        split: bool,
        send: Callable[[Any], Any] = jax.device_put,
    ):
        self.counts: list[int] = []
        self.rows, self.first, self.length = rows, first, steps
        self._gatherer, self._look, self._part = gatherer, look, part
        self._split, self._send_to_device = split, send
        leaves, self._structure = jax.tree.flatten(like)
        shapes = [(steps, rows, *leaf.shape[1:]) for leaf in leaves]
        pairs = zip(shapes, leaves, strict=True)
        self.memory = [gatherer.empty(shape, leaf.dtype) for shape, leaf in pairs]
        self._nbytes = sum(memory[0].nbytes for memory in self.memory)  # of a step
        self._device = chosen_device()
        self._jobs: list[Future[Any]] = []
        self._begun = 0  # steps whose parts are under way

    def add(self, leaves: list[np.ndarray], rows: int) -> None:
        """The arrays of the next batch, which are copied, and how many rows it has."""
        step = len(self.counts)
        for memory, leaf in zip(self.memory, leaves, strict=True):
            out = memory[step]
            if rows < self.rows:
                out[rows:] = leaf[:1]
                out = out[:rows]
            self._gatherer.copy(leaf, out)
        self.counts.append(rows)
        if step + 1 - self._begun == self._part:
            self._begin(step + 1)

    def leaves(self, step: int) -> list[np.ndarray]:
        """The arrays of one of the batches, in this chunk's memory."""
        return [memory[step, : self.counts[step]] for memory in self.memory]

    def batch(self, step: int) -> tuple:
        """One of the batches, in this chunk's memory."""
        return self._tree(self.leaves(step))

    def finish(self, steps: int) -> None:
        """No batch follows: missing steps are filled with the first one.

        The chunk has this length from now on.

        Args:
            steps: Of the chunk; fewer than there are batches, if some are left out.
        """
        if self._begun > steps:  # rare: once more, without those
            self._jobs, self._begun, self._part = [], 0, steps
        while self._begun < steps:
            self._begin(min(self._begun + self._part, steps))
        self.length = steps

    def result(self) -> Any:
        """The chunk's data on the device, ``[steps, rows, …]``, or a list of parts.

        Little of it on a CPU stays NumPy's: calls of programs take that more quickly
        than ``jax.device_put`` does.
        """
        parts = [job.result() for job in self._jobs]
        if not self._split:
            tree = self._tree([memory[: self.length] for memory in self.memory])
            little = self.length * self._nbytes <= LITTLE
            return tree if little else self._send_to_device(tree)
        return parts if len(parts) > 1 else parts[0]

    def _begin(self, stop: int) -> None:
        start, self._begun = self._begun, stop
        job = self._gatherer.submit(
            (stop - start) * self._nbytes, self._send, start, stop
        )
        self._jobs.append(job)
        if len(self._jobs) >= _UNDER_WAY:
            self._jobs[-_UNDER_WAY].exception()  # waits

    def _send(self, start: int, stop: int) -> Any:
        real = min(len(self.counts), stop)
        for memory in self.memory:
            memory[max(real, start) : stop] = memory[:1]
        steps = [memory[start:stop] for memory in self.memory]
        if start < real:
            rows = [v.reshape(-1, *v.shape[2:]) for v in steps]
            batches = map(self.batch, range(start, real))
            self._look(self._tree(rows), batches, self.first + start)
        if not self._split:
            return None
        with jax.default_device(self._device):
            return self._send_to_device(self._tree(steps))

    def _tree(self, leaves: list[np.ndarray]) -> Any:
        return self._structure.unflatten(leaves)


def leaves_of(batch: tuple) -> list[np.ndarray]:
    """The arrays of a batch; quickly, if they are its parts."""
    parts = [part for part in batch if part is not None]
    plain = all(type(part) is np.ndarray for part in parts)
    return parts if plain else jax.tree.leaves(batch)
