"""`Dashboard`: collects what a training tells, and draws it at a pace it can afford."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from exburn.callbacks.contract import Callback
from exburn.callbacks.dashboard.figure import LiveFigure
from exburn.callbacks.dashboard.state import DashboardState, memory_texts
from exburn.core.printing import notebook_shell
from exburn.errors import warn
from exburn.runtime.device import device_info, memory_use

_SHARE = 0.005  # of the time may go into drawing
_SHORTEST, _LONGEST = 0.25, 3.0  # seconds between two drawings


class DashboardView(Protocol):
    """A place that a dashboard is drawn on."""

    def draw(self) -> None:
        """Shows the state as it is now."""
        ...

    def is_stale(self) -> bool:
        """Tells whether the user wants to see something else: a resized window."""
        ...

    def close(self, persistent: bool) -> None:
        """Leaves the place tidy; with the last picture, if that is to stay."""
        ...


class Dashboard(Callback):
    """Curves, progress, speed and memory of a training, live.

    A terminal shows it on a screen of its own, with curves in braille; what is printed
    meanwhile stays in the terminal, and its last lines are shown below the curves. The
    keys 1, 2, 3, Tab and the arrows lead to a table of the epochs and to the output.
    In a notebook it is a picture that is updated in place, and that stays in the saved
    file. Elsewhere, in a pipe or a file, `fit`'s own lines are printed. It draws four
    times a second at most, and where that would take more than a two-hundredth of the
    time less often, down to every three seconds.

    Args:
        persistent: Whether the last picture stays in the terminal when the run is over;
            a line with the last values does otherwise. In a notebook it always stays.
        title: The first line; the model's name by default.
        console: A `rich.console.Console` to draw on instead of standard output.

    Example:
        >>> import io
        >>> from rich.console import Console
        >>> page = Console(file=io.StringIO(), force_terminal=True, width=60, height=20)
        >>> dashboard = Dashboard(title="digits", console=page)
        >>> dashboard.set_params({"epochs": 1, "steps": 2, "batch_size": 8})
        >>> dashboard.on_train_begin()
        >>> dashboard.on_epoch_begin(0)
        >>> dashboard.on_chunk_end(2, {"loss": 0.5})
        >>> dashboard.on_epoch_end(0, {"loss": 0.5})
        >>> dashboard.on_train_end()
        >>> dashboard.on_exit()
        >>> "digits" in page.file.getvalue()
        True
    """

    light = True

    def __init__(
        self, persistent: bool = True, *, title: str | None = None, console: Any = None
    ):
        self.persistent, self.title, self.console = persistent, title, console
        self.data_wait: float | None = None  # set by the trainer
        self.state = DashboardState("")
        self._view: DashboardView | None = None
        self._draw_at = 0.0
        self._finished = False

    @property
    def shows_progress(self) -> bool:  # type: ignore[override]
        """Tells whether there is a place to draw on."""
        return self._place() is not None

    # ------------------------------------------------------------------ hooks
    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._close("")
        name = getattr(self.model, "name", None)
        device = device_info()["name"]
        self.state = DashboardState(str(self.title or name or "training"), device)
        self.state.plan(self.params or {})
        self._finished = False
        make = self._place() if self.writes else None
        self._view = None if make is None else make(self.state)
        self._draw_at = 0.0
        self._draw()

    def on_compile(self, program: str) -> None:
        if self._view is not None:
            self.state.phase = f"compiling {program}"
            self._draw_at = 0.0
            self._draw()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.state.begin_epoch(epoch)

    def on_chunk_end(self, step: int, logs: dict[str, Any] | None = None) -> None:
        self.state.advance(step, logs or {})
        self._draw()

    def on_data_wait(self) -> None:
        self._draw()

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.state.phase = "validating"

    def on_test_chunk_end(self, step: int, logs: dict[str, Any] | None = None) -> None:
        self._draw()

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        self.state.phase = "training"

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self.state.end_epoch(epoch, logs or {})
        self._draw()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._finished = True

    def on_exit(self, error: BaseException | None = None) -> None:
        if error is None or isinstance(error, GeneratorExit):  # `break` in a loop
            self._close("finished" if self._finished or error else "")
        elif isinstance(error, KeyboardInterrupt):
            self._close("interrupted")
        else:
            self._close("failed")

    # ------------------------------------------------------------------ drawing
    def _place(self) -> Callable[[DashboardState], DashboardView] | None:
        console = self.console
        if console is None and notebook_shell() is not None:
            return _NotebookView
        if console is None:
            from rich import get_console

            console = get_console()
            terminal = sys.stdout is not None and sys.stdout.isatty()
            if not terminal or console.is_dumb_terminal:
                return None
        elif not console.is_terminal or console.is_dumb_terminal:
            return None

        def make(state: DashboardState) -> DashboardView:
            from exburn.callbacks.dashboard.terminal import TerminalDashboard

            return TerminalDashboard(state, console)

        return make

    def _draw(self) -> None:
        now = time.perf_counter()
        if self._view is None or (now < self._draw_at and not self._view.is_stale()):
            return
        self.state.data_wait = self.data_wait
        self.state.gauges = memory_texts(memory_use())
        self._write_safely(self._view.draw)
        done = time.perf_counter()
        pause = min(max((done - now) / _SHARE, _SHORTEST), _LONGEST)
        self._draw_at = done + pause

    def _close(self, phase: str) -> None:
        view, self._view = self._view, None
        if view is None:
            return
        if phase:
            self.state.end(phase)
        self._write_safely(lambda: view.close(self.persistent))

    def _write_safely(self, write: Callable[[], object]) -> None:
        """Calls it; a closed terminal ends the dashboard, not the training."""
        try:
            write()
        except OSError as error:
            view, self._view = self._view, None
            if view is not None:
                try:
                    view.close(False)
                except OSError:
                    pass  # the same terminal
            warn(f"the dashboard ends, it cannot be drawn: {error}", RuntimeWarning)


class _NotebookView:
    """A dashboard in a cell of a notebook."""

    def __init__(self, state: DashboardState):
        self._figure = LiveFigure(state)

    def draw(self) -> None:
        self._figure.draw()

    def is_stale(self) -> bool:
        return False

    def close(self, persistent: bool) -> None:
        self._figure.draw()
