"""Shows a run live: curves, progress, speed; Ctrl-C leaves it, and the run goes on.

  exburn dashboard runs/mnist
  exburn dashboard runs/mnist --once

The keys 1, 2 and 3 show curves, a table of the epochs, and output. In a pipe, or with
--once or --json, it tells how things are now and ends.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from exburn.command_line.output import above_zero, show
from exburn.runs.json_lines import number_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="the run's folder")
    parser.add_argument(
        "--once", action="store_true", help="show it once, and do not stay"
    )
    parser.add_argument(
        "--every",
        type=above_zero,
        default=1.0,
        metavar="SECONDS",
        help="to look again (1)",
    )


def run(options: argparse.Namespace) -> None:
    """Shows the run until it is over."""
    from exburn.runs import read

    record = read(options.run_folder)
    if options.json:
        show(options, record.to_dict(), "")
        return
    from rich import get_console

    from exburn.callbacks.dashboard.frame import draw_frame, to_text
    from exburn.callbacks.dashboard.terminal import TerminalDashboard

    console = get_console()
    if options.once or not console.is_terminal or console.is_dumb_terminal:
        lines = draw_frame(
            state_of(record), console.width, 22, plain=console.options.ascii_only
        )
        print("\n".join(line.rstrip() for line in to_text(lines, console)))
        return
    view = TerminalDashboard(state_of(record), console)
    try:
        while True:
            view.draw()
            if record.state != "running":
                break
            later = time.monotonic() + max(options.every, 0.1)
            while time.monotonic() < later and not view.is_stale():
                time.sleep(0.05)
            record = read(options.run_folder)
            view.state = state_of(record)
    except KeyboardInterrupt:
        pass  # the way to leave
    finally:
        view.close(persistent=True)
        sys.stdout.flush()


def state_of(run: Any) -> Any:
    """The state of a dashboard of a run: its records, as when they were made."""
    from exburn.callbacks.dashboard.state import DashboardState, memory_texts
    from exburn.runtime.device import MemoryUse

    now = 0.0
    state = DashboardState(run.name, run.environment.get("device") or "", lambda: now)
    state.plan({**run.part("fit"), "epochs": run.planned})
    for record in sorted(
        (*run.chunks, *run.epochs), key=lambda r: (r["epoch"], r.get("step") or 0)
    ):
        epoch, logs = record["epoch"], record.get("logs") or {}
        values = {name: number_of(value) for name, value in logs.items()}
        values = {name: value for name, value in values.items() if value is not None}
        now = max(now, number_of(record.get("seconds")) or 0.0)
        if epoch != state.epoch or state.phase == "starting":
            state.begin_epoch(epoch)
        state.advance(max(record.get("step") or 0, state.step), values)
        if record.get("kind") == "epoch":
            state.end_epoch(epoch, values)
        if record.get("host_bytes") is not None:
            use = MemoryUse(record.get("device_bytes"), None, record["host_bytes"])
            state.gauges = memory_texts(use)
    begins = [e.get("time") for e in run.events if e.get("event") == "begin"]
    if run.state == "running":
        now = max(now, time.time() - begins[-1]) if begins and begins[-1] else now
    else:
        now = max(now, run.seconds)
        state.end(run.state)
    return state
