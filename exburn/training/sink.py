"""Outputs on their way from the device to the host."""

from __future__ import annotations

from collections import deque
from typing import Any

import jax
import numpy as np

from exburn.errors import DataError
from exburn.training.feed import Chunk
from exburn.training.transfer import brought

__all__ = ["Sink"]

_IN_FLIGHT = 2  # chunks whose outputs may still be on the device


class Sink:
    """Collects outputs on the host, one chunk behind the device."""

    def __init__(self, rows: int | None):
        self._rows = rows
        self._pending: deque[tuple[list[int] | None, int, Any]] = deque()
        self._parts: list[Any] = []
        self._whole: Any = None
        self._filled = 0

    def put(self, chunk: Chunk, outputs: Any) -> None:
        self._pending.append((chunk.rows, chunk.samples, brought(outputs)))
        while len(self._pending) > _IN_FLIGHT:
            self._take()

    def _take(self) -> None:
        count, samples, outputs = self._pending.popleft()
        for leaf in jax.tree.leaves(outputs):
            if leaf.ndim < 2:
                raise DataError(
                    "predict",
                    "an output has no batch axis, so rows cannot be told apart",
                )

        def rows(leaf):
            host = np.asarray(leaf)
            flat = host.reshape((-1, *host.shape[2:]))
            if count is None or all(n == host.shape[1] for n in count[:-1]):
                return flat[:samples]
            keep = np.arange(host.shape[1]) < np.array(count)[:, None]
            return host[: len(count)][keep]

        part = jax.tree.map(rows, outputs)
        if self._rows is None:
            self._parts.append(part)
            return
        if self._whole is None:
            total = self._rows
            self._whole = jax.tree.map(
                lambda v: np.empty((total, *v.shape[1:]), v.dtype), part
            )
        stop = self._filled + samples
        jax.tree.map(
            lambda whole, v: whole.__setitem__(slice(self._filled, stop), v),
            self._whole,
            part,
        )
        self._filled = stop

    def result(self) -> Any:
        while self._pending:
            self._take()
        if self._rows is None:
            return jax.tree.map(lambda *v: np.concatenate(v), *self._parts)
        return jax.tree.map(lambda v: v[: self._filled], self._whole)
