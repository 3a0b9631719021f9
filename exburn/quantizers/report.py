"""What quantization did to a model: bytes saved, and errors made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Group
from rich.table import Table
from rich.text import Text

from exburn.core.printing import Plain, page_text
from exburn.errors.boundary import guard_methods

#: Why an activation has no range.
UNSEEN = "0 throughout, or never computed"


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
        mode: What it was quantized to; that of the report if None.
        kind_of_reason: One of the report's ``SKIP_…``; the reason itself if None.
    """

    path: str
    kind: str
    scheme: str | None
    bytes_before: int
    bytes_after: int
    mean_error: float | None = None
    worst_error: float | None = None
    reason: str | None = None
    mode: str | None = None
    kind_of_reason: str | None = None


@guard_methods
class QuantizationReport:
    """What ``model.quantize`` did, or would do; prints itself as a table.

    Args:
        mode: What the model was quantized to.

    Attributes:
        mode: The same.
        layers: The layers that were quantized.
        left_alone: Those with weights that were not, each with a reason.
        bytes_before, bytes_after: Bytes of all weights of the model.
        calibrated: Whether errors are of outputs on a calibration batch; else they are
            of the weights.
        mean_error, worst_error: Of the model's outputs on the calibration batch,
            relative to the root mean square of the exact outputs; None without one.
        unrounded: The activations that would have been rounded, and have no range:
            they were 0 throughout, or were never computed.

    Example:
        >>> report = QuantizationReport("int8")
        >>> report.add_quantized("head", "int8", "int8_from_float32")
        >>> report.add_skipped("norm", report.SKIP_NO_SUPPORT)
        >>> report.quantized, report.skipped
        ([('head', 'int8', 'int8_from_float32')], [('norm', 'no quantize support')])

    Source: ``keras.quantizers.QuantizationReport``, of Keras 3.16.
    """

    SKIP_NO_SUPPORT = "no quantize support"
    SKIP_FILTERED = "filtered out"
    SKIP_ALREADY_QUANTIZED = "already quantized"
    SKIP_OUTSIDE_STRUCTURE = "outside quantization structure"

    def __init__(self, mode: str | None = None):
        self.mode = mode
        self.layers: tuple[LayerReport, ...] = ()
        self.left_alone: tuple[LayerReport, ...] = ()
        self.bytes_before = self.bytes_after = 0
        self.calibrated = False
        self.mean_error: float | None = None
        self.worst_error: float | None = None
        self.unrounded: tuple[str, ...] = ()

    def add_quantized(self, path: str, mode: str | None, scheme: str | None) -> None:
        """Notes a layer that was quantized.

        Args:
            path: Where it is in the model.
            mode: What it was quantized to.
            scheme: How its weights are stored.
        """
        self.layers += (LayerReport(path, "", scheme, 0, 0, mode=mode),)

    def add_skipped(self, path: str, reason: str) -> None:
        """Notes a layer that was left alone.

        Args:
            path: Where it is in the model.
            reason: Why.
        """
        self.left_alone += (LayerReport(path, "", None, 0, 0, reason=reason),)

    @property
    def quantized(self) -> list[tuple[str, str | None, str | None]]:
        """Path, mode and way of storing of each layer that was quantized."""
        return [(row.path, row.mode or self.mode, row.scheme) for row in self.layers]

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """Path and kind of reason, one of ``SKIP_…``, of each layer left alone.

        The ``reason`` of the rows of ``left_alone`` tells more.
        """
        rows = self.left_alone
        return [(row.path, row.kind_of_reason or row.reason or "") for row in rows]

    @property
    def num_quantized(self) -> int:
        """Number of layers that were quantized."""
        return len(self.layers)

    @property
    def num_skipped(self) -> int:
        """Number of layers that were left alone."""
        return len(self.left_alone)

    def skipped_by_reason(self, reason: str) -> list[str]:
        """Paths of the layers that were left alone for a reason.

        Args:
            reason: One of ``SKIP_…``.
        """
        return [path for path, kind in self.skipped if kind == reason]

    def summary_warning(self, max_examples: int = 5) -> str | None:
        """One line about layers that cannot be quantized; None if there are none.

        Args:
            max_examples: How many of them it names.
        """
        paths = self.skipped_by_reason(self.SKIP_NO_SUPPORT)
        if not paths:
            return None
        more = ", …" if len(paths) > max_examples else ""
        named = ", ".join(map(repr, paths[:max_examples])) + more
        return (
            f"quantize: {len(paths)} layers cannot be quantized and stay as they are "
            f"({named}); {self.num_quantized} are quantized to {self.mode}"
        )

    def render(self) -> str:
        """The table as text."""
        return str(self)

    @property
    def ratio(self) -> float:
        """Bytes afterwards for each byte before."""
        return self.bytes_after / max(1, self.bytes_before)

    def __rich__(self) -> Plain:
        return Plain(Group(*self._page()))

    def _page(self) -> Iterator[Table | Text]:
        of = "output" if self.calibrated else "weights"
        table = Table(title=f"Quantization to {self.mode}", title_justify="left")
        for name in ("Layer", "Type", "Stored as"):
            table.add_column(name, overflow="fold")
        for name in ("Bytes before", "after", f"Mean error ({of})", "worst"):
            table.add_column(name, justify="right")
        for row in self.layers:
            table.add_row(
                row.path,
                row.kind,
                row.scheme or "",
                f"{row.bytes_before:,}",
                f"{row.bytes_after:,}",
                _percent(row.mean_error),
                _percent(row.worst_error),
            )
        yield table
        for reason in dict.fromkeys(row.reason for row in self.left_alone):
            paths = ", ".join(
                row.path for row in self.left_alone if row.reason == reason
            )
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
        >>> mean, worst = relative_errors(jnp.array([3.0, 4.0]), jnp.array([4.0, 4.0]))
        >>> round(mean, 6), round(worst, 6)
        (0.141421, 0.282843)
    """
    largest, square, mean, worst = map(float, _differences(exact, other))
    size = largest * math.sqrt(square) or 1.0
    return mean / size, worst / size


@jax.jit
def _differences(exact: Any, other: Any) -> tuple[Any, ...]:
    """The largest exact value, the mean square in parts of it, and the differences."""
    exact, other = (jnp.ravel(v).astype(jnp.float32) for v in (exact, other))
    largest, difference = jnp.abs(exact).max(), jnp.abs(other - exact)
    shares = exact / jnp.where(largest == 0, 1, largest)
    return largest, jnp.square(shares).mean(), difference.mean(), difference.max()


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2g} %"
