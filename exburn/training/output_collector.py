"""Outputs on their way from the device to the host."""

from __future__ import annotations

from collections import deque
from typing import Any

import jax
import numpy as np

from exburn.errors import DataError
from exburn.runtime.transfer import in_parts, is_large, to_host_async
from exburn.training.feed.chunk import Chunk
from exburn.training.feed.gather import HostGather

_IN_FLIGHT = 2  # chunks whose outputs may still be on the device


class OutputCollector:
    """Collects outputs on the host, one chunk behind the device."""

    def __init__(self, rows: int | None):
        self._rows = rows
        self._pending: deque[tuple[list[int] | None, int, Any]] = deque()
        self._parts: list[Any] = []
        self._whole: Any = None
        self._filled = 0
        self._gatherer = HostGather()

    @property
    def has_rows(self) -> bool:
        """Whether any outputs came: a callback may end a prediction."""
        return bool(self._pending or self._filled or self._parts)

    def put(self, chunk: Chunk, outputs: Any) -> None:
        self._pending.append((chunk.rows, chunk.samples, to_host_async(outputs)))
        while len(self._pending) > _IN_FLIGHT:
            self._take()

    def rows(self, chunk: Chunk, outputs: Any) -> Any:
        """The chunk's real rows, on the host at once."""
        return self._rows_in(outputs, chunk.rows, chunk.samples)

    def _take(self) -> None:
        count, samples, outputs = self._pending.popleft()
        for leaf in jax.tree.leaves(outputs):
            if leaf.ndim < 2:
                raise DataError(
                    "predict",
                    "an output has no batch axis, so rows cannot be told apart",
                )

        if self._rows is None:
            self._parts.append(self._rows_in(outputs, count, samples))
            return
        if samples == self._rows:  # one chunk, as of predict_on_batch: no views of it
            self._whole = jax.tree.map(
                lambda v: self._rows_of(v, count, samples, _empty(samples, v)), outputs
            )
            self._filled = samples
            return
        if self._whole is None:
            total = self._rows
            self._whole = jax.tree.map(lambda v: _empty(total, v), outputs)
        stop = self._filled + samples
        parts = jax.tree.map(lambda v: v[self._filled : stop], self._whole)
        jax.tree.map(
            lambda v, out: self._rows_of(v, count, samples, out), outputs, parts
        )
        self._filled = stop

    def _rows_in(self, outputs: Any, count: list[int] | None, samples: int) -> Any:
        return jax.tree.map(lambda v: self._rows_of(v, count, samples), outputs)

    def _rows_of(
        self,
        outputs: Any,
        count: list[int] | None,
        samples: int,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """The real rows of ``[steps, batch, …]`` on the host, in ``out`` if given.

        Args:
            count: Real rows of each step.
        """
        if count is not None and all(n == outputs.shape[1] for n in count[:-1]):
            count = None  # they follow one another
        if count is None and is_large(outputs):
            out = _empty(samples, outputs) if out is None else out
            for start, rows in in_parts(outputs):
                part = out[start : start + len(rows)]
                self._gatherer.copy(rows[: len(part)], part)
            return out
        host = np.asarray(outputs)
        if count is None:
            rows = host.reshape((-1, *host.shape[2:]))[:samples]
        else:
            keep = np.arange(host.shape[1]) < np.array(count)[:, None]
            rows = host[: len(count)][keep]
        if out is None:
            return rows
        self._gatherer.copy(rows, out)
        return out

    def result(self) -> Any:
        while self._pending:
            self._take()
        self._gatherer.close()
        if self._rows is None:
            return jax.tree.map(lambda *v: np.concatenate(v), *self._parts)
        if self._filled == self._rows:
            return self._whole
        return jax.tree.map(lambda v: v[: self._filled], self._whole)


def _empty(rows: int, leaf: Any) -> np.ndarray:
    return np.empty((rows, *leaf.shape[2:]), leaf.dtype)
