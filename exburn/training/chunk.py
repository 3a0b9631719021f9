"""What one call of a program works on."""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["Chunk"]


@dataclasses.dataclass
class Chunk:
    """What one call of a program works on.

    Attributes:
        data: Resident: the whole data set ``[samples, …]``; else ``[k, batch, …]``, or
            a list of such parts, one after another.
        index: Resident: row numbers ``[k, batch]``; else ``None``.
        count: ``None`` if every step is full; else ``(rows,)``, the real rows of each
            step ``[k]``; or ``(rows, active)`` where a step may hold none, with
            ``active`` telling which do.
        steps: Steps that are not only padding.
        samples: Real rows.
        grouped: Whether the steps are whole groups of accumulated gradients.
        rows: Real rows of each step, where others than the last one may be short.
    """

    data: Any
    index: Any
    count: Any
    steps: int
    samples: int
    grouped: bool = False
    rows: list[int] | None = None
