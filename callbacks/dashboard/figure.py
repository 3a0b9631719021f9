"""The dashboard as a picture in a notebook, which stays in the saved file."""

from __future__ import annotations

from typing import Any

from exburn.callbacks.dashboard.state import (
    DashboardState,
    duration_text,
    rate_text,
    value_text,
)
from exburn.visualization.svg import draw_page

_MOST_PANELS = 12


class LiveFigure:
    """One output of a cell, updated in place: figures and curves as SVG.

    Args:
        state: What is shown.
    """

    def __init__(self, state: DashboardState):
        self.state = state
        self._handle: Any = None

    def draw(self) -> None:
        """Shows the state as it is now."""
        if self._handle is None:
            from IPython.display import display

            self._handle = display(self, display_id=True)
        else:
            self._handle.update(self)

    def lines(self) -> list[str]:
        """The lines above the curves."""
        state = self.state
        total = f" of {state.epochs}" if state.epochs else ""
        first = [state.title, state.phase, f"epoch {state.epoch}{total}"]
        second = [duration_text(state.elapsed_time)]
        if (eta := state.eta) is not None:
            second.append(f"ETA {duration_text(eta)}")
        if (rate := state.rate) is not None:
            second.append(f"{rate_text(rate)} {state.unit}/s")
        second += [state.device, *state.gauges]
        third = [f"{name} {value_text(v)}" for name, v in list(state.logs.items())[:6]]
        rows = (first, second, third)
        return [" · ".join(part for part in row if part) for row in rows if row]

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_svg_(self) -> str:
        panels = self.state.panels()[:_MOST_PANELS]
        return draw_page(self.lines(), panels, columns=2 if len(panels) < 5 else 3)
