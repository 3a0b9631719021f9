"""A `fit` of one epoch on data that the device does not have, and on those it has.

    python benchmarks/first_epoch.py [--device cpu] [--work mbconv-32] [--json out.json]

Each kind of model trains on two parts of its data in turn, as programs do whose data do
not fit into one array. ``new, early`` begins with the rows that it needs first, while
the others are sent; ``new, late`` sends all rows before (the same program with the
switch off); ``again`` has the same data as the call before; ``later`` is an epoch
inside of one `fit`. Printed are milliseconds, the best of all rounds, which go through
the ways in turn, and ratios to ``later``: 1.00 is data that cost nothing. Cells are
measured in a process each and printed as they come; an H200 takes some three minutes.
A processor takes arrays as they are: ``--device cpu`` only shows that it runs.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from breadth_models import CELLS, loss_of
from breadth_processor import PROCESSOR_CELLS
from fit_again import Stopwatch, epoch_watch
from process import options, read, result_of, write
from throughput import Terminal

ALL = CELLS | PROCESSOR_CELLS
# A cell; its samples on a GPU, and on a processor.
WORKS = {
    "vae-784": (60_000, 5_120),
    "table-residual": (60_000, 5_120),
    "mbconv-32": (60_000, 640),
    "vit-16-float32": (60_000, 1_600),
}


def measure(work: str, device: str, rounds: int) -> dict[str, Any]:
    import exburn as k
    from exburn.training.feed import arriving_rows, resident_rows

    cell, large = ALL[work], resident_rows._LARGE
    k.set_precision("float32" if cell.dtype == "float32" else "mixed_bfloat16")
    model = cell.keras_like(k)
    model.compile("adam", **loss_of(cell, k))
    samples = WORKS[work][device == "cpu"] // cell.batch * cell.batch
    x, y = cell.data(samples)
    parts = [(x, y), (x.copy(), y.copy())]
    parts[1][0][:1] += 1  # other data
    watch, early = Stopwatch(), [0]
    hold = arriving_rows.ArrivingRows.hold

    def counted(self: Any, rows: Any = None) -> Any:
        keys = hold(self, rows)
        early[0] += keys is None
        return keys

    arriving_rows.ArrivingRows.hold = counted

    def fit(number: int, epochs: int = 1, *callbacks: Any) -> None:
        more: dict[str, Any] = {"callbacks": list(callbacks), "verbose": 1}
        model.fit(*parts[number], batch_size=cell.batch, epochs=epochs, **more)

    with contextlib.redirect_stdout(Terminal()):
        begun = time.perf_counter()
        for _ in range(2):
            for number in (0, 1, 0, 1, 1):
                fit(number)
        started = time.perf_counter() - begun
        for _ in range(rounds):
            fit(0, 3, epoch_watch(k.callbacks, watch, validates=False))
            for way, least in (("new, early", large), ("new, late", 1 << 62)):
                resident_rows._LARGE = least
                for number in (1, 0, 1, 0):
                    watch.time(way, lambda number=number: fit(number))
            resident_rows._LARGE = large
            fit(0)
            for _ in range(2):
                watch.time("again", lambda: fit(0))
    times = {way: [round(v * 1e3, 3) for v in best] for way, best in watch.best.items()}
    return {
        "samples": samples,
        "megabytes": (x.nbytes + y.nbytes) / 1e6,
        "seconds to start": round(started, 1),
        "chunks begun early": early[0],
        "ms": times,
    }


def line_of(work: str, result: dict[str, Any]) -> str:
    """The line that is printed of a result."""
    ms = result["ms"]
    parts = [f"{work:18} {result['megabytes']:7.1f} MB", f"later {ms['later'][0]:.1f}"]
    for way in ("new, early", "new, late", "again"):
        ratio = ms["later"][0] / ms[way][0]
        parts.append(f"{way} {ms[way][0]:.1f} ({ratio:.2f} ×)")
    return "  ".join([*parts, f"early chunks {result['chunks begun early']}"])


def main() -> None:
    parser = options(__doc__, ("exburn",), WORKS)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if args.child:
        result = measure(args.child[0], args.device, args.rounds)
        print("RESULT " + json.dumps(result), flush=True)
        return
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if args.device == "cpu":
        env |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    report: dict[str, Any] = read(args.json)
    for work in args.work.split(","):
        more = ["--device", args.device, "--rounds", str(args.rounds)]
        result = result_of(__file__, work, "exburn", *more, env=env)
        if result is None:
            print(f"{work} failed", flush=True)
            continue
        print(line_of(work, result), flush=True)
        report[work] = result
        if args.json:
            write(args.json, report)


if __name__ == "__main__":
    main()
