"""The cost of watching a training: dashboard, run directory and logger, and a slow one.

    python benchmarks/observers.py [--seconds 30] [--rounds 3] [--json F]

The MLP of the other benchmarks is trained for about so many seconds by each of

- ``plain``: `fit` in silence;
- ``watched``: with a dashboard on a terminal of 200 × 60 (a pseudo-terminal, which a
  thread reads), a run directory, and a logger that gets every chunk's and epoch's logs;
- ``slow``: with a logger whose receiver sleeps a second a call,

in turn, in one process, with the same compiled program. Printed are samples/s from the
end of the first epoch to that of the last, with all that is drawn, written and sent
meanwhile, and what each costs in percent of ``plain``; the same for whole calls of
``fit``, with what they write at their ends, and for the median epoch. The slow
receiver's records are counted: taken, left out and waiting ones must be all.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import statistics
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import jax
from rich.console import Console
from workloads import WORKLOADS, data, keras_like

import exburn
from exburn import layers
from exburn.callbacks import Callback, Dashboard, Logger

PEERS = ("plain", "watched", "slow")


class Clock(Callback):
    """Notes when epochs end."""

    light = True

    def __init__(self):
        self.times = [time.perf_counter()]

    def on_epoch_end(self, epoch, logs=None):
        self.times.append(time.perf_counter())


class Receiver:
    """Takes values, and sleeps so many seconds for each record."""

    def __init__(self, sleep: float):
        self.sleep, self.count = sleep, 0

    def log(self, values, step):
        time.sleep(self.sleep)
        self.count += 1


class Terminal:
    """A pseudo-terminal of 200 × 60, and a thread that reads it."""

    def __init__(self):
        master, slave = pty.openpty()
        self.file = os.fdopen(slave, "w", encoding="utf-8")
        self.bytes = 0
        self.console = Console(
            file=self.file,
            force_terminal=True,
            color_system="256",
            width=200,
            height=60,
        )
        thread = threading.Thread(target=self._read, args=(master,), daemon=True)
        thread.start()

    def _read(self, master: int) -> None:
        while data := os.read(master, 1 << 16):
            self.bytes += len(data)


def observers(peer: str, folder: str, terminal: Terminal) -> tuple[list[Any], dict]:
    if peer == "watched":
        dashboard = Dashboard(console=terminal.console)
        return [dashboard, Logger(Receiver(0.0))], {"run": Path(folder, "run")}
    return ([Logger(Receiver(1.0))] if peer == "slow" else []), {}


def count(callbacks: list[Any]) -> dict[str, int]:
    """The logger's records, when all that can be sent at once is sent."""
    for callback in callbacks:
        if isinstance(callback, Logger):
            queue = callback._queue
            assert queue is not None
            names = ("sent", "dropped", "failed", "waiting")
            return {name: getattr(queue, name) for name in names}
    return {}


def measure(seconds: float, rounds: int) -> dict[str, Any]:
    work = WORKLOADS["mlp"]
    gpu = jax.default_backend() != "cpu"
    samples = work.samples if gpu else work.cpu_samples
    x, y = data("mlp", samples)
    model = keras_like("mlp", exburn, layers, None)
    model.compile("adam", loss="cross_entropy", metrics=["accuracy"])

    def fit(epochs: int, callbacks: list[Any], **options: Any) -> dict[str, float]:
        clock = Clock()
        began = time.perf_counter()
        model.fit(
            x,
            y,
            batch_size=work.batch,
            epochs=epochs,
            verbose=0,
            callbacks=[*callbacks, clock],
            **options,
        )
        took = time.perf_counter() - began
        gaps = [b - a for a, b in zip(clock.times, clock.times[1:], strict=False)]
        steady = (clock.times[-1] - clock.times[1]) / (epochs - 1)
        times = {"steady": steady, "fit": took / epochs}
        times["epoch"] = statistics.median(gaps[1:])
        return {what: samples / value for what, value in times.items()}

    fit(2, [])
    epochs = max(round(seconds * fit(4, [])["epoch"] / samples), 3)
    terminal = Terminal()
    rates: dict[str, dict[str, list]] = {
        peer: {"steady": [], "fit": [], "epoch": [], "records": []} for peer in PEERS
    }
    for number in range(rounds):
        for peer in PEERS[number % 3 :] + PEERS[: number % 3]:
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the slow logger's records
                watchers, options = observers(peer, folder, terminal)
                for what, rate in fit(epochs, watchers, **options).items():
                    rates[peer][what].append(rate)
                rates[peer]["records"].append(count(watchers))
                for path in Path(folder).glob("run/report.html"):
                    rates[peer]["report_bytes"] = [path.stat().st_size]
    return {
        "device": str(jax.devices()[0].device_kind),
        "samples": samples,
        "batch": work.batch,
        "epochs": epochs,
        "terminal_bytes": terminal.bytes,
        "peers": rates,
        "cost_percent": {
            peer: {
                what: round(
                    100
                    * (
                        statistics.median(rates["plain"][what])
                        / statistics.median(rates[peer][what])
                        - 1
                    ),
                    2,
                )
                for what in ("steady", "fit", "epoch")
            }
            for peer in PEERS[1:]
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result = measure(options.seconds, options.rounds)
    for peer, values in result["peers"].items():
        rate = statistics.median(values["steady"])
        costs = result["cost_percent"].get(peer, {})
        text = "".join(f"  {what} {cost:+.2f} %" for what, cost in costs.items())
        print(f"{peer:8} {rate:12,.0f} samples/s{text}  {values['records'][-1]}")
    print(f"{result['device']}, {result['epochs']} epochs of {result['samples']} rows")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))
    sys.stdout.flush()
    os._exit(0)  # not to wait for the slow receiver's last records


if __name__ == "__main__":
    main()
