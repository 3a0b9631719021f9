"""What quantization did to a model: bytes saved, and errors made."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from exburn.core.printing import Plain, page_text

#: Why an activation has no range.
UNSEEN = "0 throughout, or never computed"
_SLICE = 1 << 20  # numbers that are compared at a time, to bound the copies


@dataclasses.dataclass(frozen=True)
class LayerReport:
    """One layer's entry.

    Attributes:
        path: Where it is in the model.
        kind: Its class.
        scheme: How its weights are stored; None if it was left alone.
        bytes_before, bytes_after: Bytes of its own weights.
        mean_error, worst_error: Of its output on the calibration batch, or of its
            weights without one; relative to the root mean square of the exact values.
        reason: Why it was left alone, else None.
    """

    path: str
    kind: str
    scheme: str | None
    bytes_before: int
    bytes_after: int
    mean_error: float | None = None
    worst_error: float | None = None
    reason: str | None = None


@dataclasses.dataclass(frozen=True)
class QuantizationReport:
    """What ``model.quantize`` did, or would do; prints itself as a table.

    Attributes:
        dtype: What the model was quantized to.
        layers: The layers that were quantized.
        skipped: Those with weights that were left alone, each with a reason.
        bytes_before, bytes_after: Bytes of all weights of the model.
        calibrated: Whether errors are of outputs on a calibration batch; else they are
            of the weights.
        mean_error, worst_error: Of the model's outputs on the calibration batch,
            relative to the root mean square of the exact outputs; None without one.
        unrounded: The activations that would have been rounded, and have no range:
            they were 0 throughout, or were never computed. ``hidden/output``.
    """

    dtype: str
    layers: tuple[LayerReport, ...]
    skipped: tuple[LayerReport, ...]
    bytes_before: int
    bytes_after: int
    calibrated: bool
    mean_error: float | None = None
    worst_error: float | None = None
    unrounded: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """Bytes afterwards for each byte before."""
        return self.bytes_after / self.bytes_before

    def __rich__(self) -> Plain:
        return Plain(Group(*self._page()))

    def _page(self) -> Iterator[Table | Text]:
        of = "output" if self.calibrated else "weights"
        table = Table(title=f"Quantization to {self.dtype}", title_justify="left")
        for name in ("Layer", "Type", "Stored as"):
            table.add_column(name, overflow="fold")
        for name in ("Bytes before", "after", f"Mean error ({of})", "worst"):
            table.add_column(name, justify="right")
        for row in self.layers:
            table.add_row(
                row.path,
                row.kind,
                row.scheme,
                f"{row.bytes_before:,}",
                f"{row.bytes_after:,}",
                _percent(row.mean_error),
                _percent(row.worst_error),
            )
        yield table
        for reason in dict.fromkeys(row.reason for row in self.skipped):
            paths = ", ".join(row.path for row in self.skipped if row.reason == reason)
            yield Text(f" Left alone ({reason}): {paths}")
        if self.unrounded:
            paths = ", ".join(self.unrounded)
            yield Text(f" Not rounded ({UNSEEN}): {paths}")
        saved = f"{self.bytes_before:,} → {self.bytes_after:,} bytes ({self.ratio:.3f})"
        yield Text(f" Model: {saved}")
        if self.calibrated:
            yield Text(
                f" Model's output: mean error {_percent(self.mean_error)}, "
                f"worst {_percent(self.worst_error)}"
            )
        yield Text(" Errors are relative to the root mean square of the exact values.")

    def __str__(self) -> str:
        return page_text(self, 110)

    __repr__ = __str__


def relative_errors(exact: Any, other: Any) -> tuple[float, float]:
    """Mean and worst absolute difference, each over the exact values' RMS.

    Example:
        >>> relative_errors(np.array([3.0, 4.0]), np.array([4.0, 4.0]))
        (0.1414213562373095, 0.282842712474619)
    """
    exact, other = np.ravel(exact), np.ravel(other)
    squares = total = worst = 0.0
    for start in range(0, exact.size, _SLICE):
        part = slice(start, start + _SLICE)
        a, b = (v[part].astype(np.float32, copy=False) for v in (exact, other))
        squares += np.square(a, dtype=np.float64).sum()
        with np.errstate(invalid="ignore"):  # infinity beyond a narrow dtype's range
            difference = np.abs(b - a)
        total += difference.sum(dtype=np.float64)
        worst = np.maximum(worst, difference.max())
    size = np.sqrt(squares / exact.size) or 1.0
    return float(total / exact.size / size), float(worst / size)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2g} %"
