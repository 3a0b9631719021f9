"""What one call of a program works on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

LITTLE = 1 << 16
"""Bytes that a call of a program on a CPU takes from NumPy more quickly than from
``jax.device_put``, or from another thread."""


@dataclasses.dataclass
class Chunk:
    """What one call of a program works on.

    Attributes:
        data: Resident: the whole data set ``[samples, …]``; else ``[k, batch, …]``, or
            a list of such parts, one after another.
        index: Resident: row numbers ``[k, batch]``; else ``None``.
        count: ``None`` if every step is full; else ``(rows,)``, the real rows of each
            step ``[k]``; or ``(rows, active)`` where a step may hold none, with
            ``active`` telling which do. Where processes have rows of their own, both
            are told of each part of the batch: ``[k, parts]``.
        steps: Steps that are not only padding; batches, where they are joined.
        samples: Real rows.
        grouped: Whether the steps are whole groups of accumulated gradients.
        rows: Real rows of each step, where others than the last one may be short.
        prove: Where ``data`` may have changed since they were sent: ``None``, or the
            data as they are now, with which the chunk is to be run again. To be called
            when the program runs, which it takes no time of.
        bucket: Number of the bucket of rows of unlike lengths that it is of.
    """

    data: Any
    index: Any
    count: Any
    steps: int
    samples: int
    grouped: bool = False
    rows: list[int] | None = None
    prove: Callable[[], Any] | None = None
    bucket: int = 0

    @property
    def program(self) -> str:
        """Name of the program that trains on it."""
        return "train_groups" if self.grouped else "train"

    @property
    def arguments(self) -> tuple[Any, Any, Any]:
        """What a program is called with, after its state."""
        return self.data, self.index, self.count
