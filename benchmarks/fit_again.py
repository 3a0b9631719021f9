"""`fit` of one epoch, called again and again, beside the epochs inside of one `fit`.

    python benchmarks/fit_again.py [--device cpu] [--work vae-784] [--seconds 280]

After a first `fit`, which compiles, each kind of model is timed in five ways. ``later``
is an epoch inside of one `fit`, ``first`` the first epoch of it, from the call on, and
``again`` a `fit` of one epoch. ``validation`` is one inside of `fit`, ``evaluate`` the
call on the same arrays; ``predict`` the call on NumPy's arrays, ``on device`` that on
arrays which JAX has put there. Printed are milliseconds, the best of all rounds, which
go through the ways in turn, and ratios: 1.00 is a call that costs nothing. Behind the
slash is the ratio by the process' time, for busy machines. All cells of a peer are
measured in one process, and printed as they come; ``--seconds`` ends it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from breadth_models import CELLS, Cell, compiled_in_keras, loss_of
from breadth_processor import PROCESSOR_CELLS
from process import environment_of, options, read, write
from throughput import Terminal

ALL = CELLS | PROCESSOR_CELLS
# A cell, and how many of its samples a processor gets.
WORKS = {
    "vae-784": 25_600,
    "table-residual": 51_200,
    "table-batch-norm": 51_200,
    "mbconv-32": 640,
    "vit-16-float32": 1_600,
    "embed-100k-32x8": 51_200,
    "lstm-2x64-100-tokens": 1_600,
}
ON_GPU = 60_000  # samples of each kind there
# What is compared: the one that ought to be as quick as the other.
RATIOS = (
    ("first", "later"),
    ("again", "later"),
    ("evaluate", "validation"),
    ("predict", "on device"),
)


class Stopwatch:
    """Seconds by the clock and of the process, of several ways: the best of each."""

    def __init__(self) -> None:
        self.best: dict[str, list[float]] = {}

    def lap(self, way: str, since: tuple[float, float]) -> tuple[float, float]:
        """Notes the time since a moment; returns this moment."""
        now = moment()
        spans = [end - begin for end, begin in zip(now, since, strict=True)]
        before = self.best.get(way, spans)
        self.best[way] = [min(pair) for pair in zip(before, spans, strict=True)]
        return now

    def time(self, way: str, call: Callable[[], Any]) -> None:
        begun = moment()
        call()
        self.lap(way, begun)


def moment() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def epoch_watch(callbacks: Any, watch: Stopwatch, validates: bool) -> Any:
    """A callback that notes how long epochs, or validations, of one `fit` take."""

    class Watch(callbacks.Callback):
        light = True

        def __init__(self) -> None:
            super().__init__()
            self.since = moment()

        def on_epoch_begin(self, epoch, logs=None):
            if epoch:
                self.since = moment()

        def on_epoch_end(self, epoch, logs=None):
            if not validates:
                self.since = watch.lap("later" if epoch else "first", self.since)

        def on_test_begin(self, logs=None):
            self.since = moment()

        def on_test_end(self, logs=None):
            watch.lap("validation", self.since)

    return Watch()


def measure(cell: Cell, peer: str, samples: int, rounds: int) -> dict[str, Any]:
    import jax

    if peer == "keras":
        model = compiled_in_keras(cell)
        import keras as k

        verbose = 0
    else:
        import exburn as k

        k.set_precision("float32" if cell.dtype == "float32" else "mixed_bfloat16")
        model, verbose = cell.keras_like(k), 1
        model.compile("adam", **loss_of(cell, k))
    x, y = cell.data(samples // cell.batch * cell.batch)
    watch, on_device = Stopwatch(), jax.device_put(x)
    common: Any = {"batch_size": cell.batch, "verbose": verbose}

    def fit(epochs: int, *callbacks: Any, **more: Any) -> None:
        model.fit(x, y, epochs=epochs, callbacks=list(callbacks), **common, **more)

    with contextlib.redirect_stdout(Terminal()):
        for _ in range(2):  # also what a second call compiles
            fit(2, validation_data=(x, y))
            model.evaluate(x, y, **common)
            for rows in (x, on_device):
                model.predict(rows, **common)
        for _ in range(rounds):
            fit(4, epoch_watch(k.callbacks, watch, validates=False))
            for _ in range(3):
                watch.time("again", lambda: fit(1))
            both = epoch_watch(k.callbacks, watch, validates=True)
            fit(3, both, validation_data=(x, y))
            for _ in range(3):
                watch.time("evaluate", lambda: model.evaluate(x, y, **common))
                watch.time("predict", lambda: model.predict(x, **common))
                watch.time("on device", lambda: model.predict(on_device, **common))
    times = {way: [round(v * 1e3, 3) for v in best] for way, best in watch.best.items()}
    return {"samples": len(x), "megabytes": (x.nbytes + y.nbytes) / 1e6, "ms": times}


def child(works: str, peer: str, device: str, rounds: int) -> None:
    """Measures cells one after the other, and prints what each one took."""
    for work in works.split(","):
        samples = WORKS.get(work, ALL[work].samples) if device == "cpu" else ON_GPU
        try:
            result = measure(ALL[work], peer, samples, rounds)
        except Exception as error:
            print(f"{work} {peer} failed: {error!r}"[:1000], file=sys.stderr)
            continue
        finally:
            gc.collect()
        print("RESULT " + json.dumps({"work": work, **result}), flush=True)


def line_of(work: str, peer: str, result: dict[str, Any]) -> str:
    """The line that is printed of a result."""
    ms = result["ms"]
    parts = [f"{work:22} {peer:7} {result['megabytes']:7.1f} MB"]
    parts += [f"{way} {best[0]:.1f}" for way, best in ms.items()]
    for way, other in RATIOS:
        clock, processor = (ms[other][i] / max(ms[way][i], 1e-9) for i in (0, 1))
        parts.append(f"{way} {clock:.2f}/{processor:.2f} ×")
    return "  ".join(parts)


def main() -> None:
    parser = options(__doc__, ("exburn",), WORKS)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    args = parser.parse_args()
    if args.child:
        works, peer = args.child
        child(works, peer, args.device, args.rounds)
        return
    more = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if args.device == "cpu":
        more |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    report: dict[str, Any] = read(args.json)
    begun = time.monotonic()
    for peer in args.peers.split(","):
        left = args.seconds - (time.monotonic() - begun)
        new = [w for w in args.work.split(",") if peer not in report.get(w, {})]
        if not new or left <= 0:
            continue
        command = [sys.executable, __file__, "--child", ",".join(new), peer]
        command += ["--device", args.device, "--rounds", str(args.rounds)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environment_of(**more)
        ) as process:
            assert process.stdout is not None
            clock = threading.Timer(min(left, threading.TIMEOUT_MAX), process.kill)
            clock.start()
            for line in process.stdout:
                if not line.startswith("RESULT "):
                    continue
                result = json.loads(line[7:])
                work = result.pop("work")
                print(line_of(work, peer, result), flush=True)
                report.setdefault(work, {})[peer] = result
                if args.json:
                    write(args.json, report)
            clock.cancel()


if __name__ == "__main__":
    main()
