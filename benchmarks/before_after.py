"""The grid of `breadth.py` in two checkouts, by turns, on the same device.

    python benchmarks/before_after.py BEFORE AFTER [--work vit-64-float32,unet-64]
        [--seconds 540] [--epochs 3] [--json F]

Runs ExBurn alone, a few cells of one checkout and then of the other, each by its own
``breadth.py``. Printed is one line of JSON a cell: samples/s before and after, the
ratio, above 1 where the second is faster, and both first epochs. Nothing begins after
``--seconds``. Differences of less than 3 % are noise.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

# Cells of each kind whose parts are rules of ours: attention, normalization, GELU,
# lookups, recurrent loops, convolutions, products, unrolled steps.
WORKS = (
    "vit-64-float32",
    "vit-16-float32",
    "vit-64-bfloat16",
    "text-64-float32",
    "text-256-float32",
    "vit-256-float32",
    "text-16-bfloat16",
    "mixer-64x256",
    "unet-64",
    "conv1d-512",
    "lstm-2x64-100-tokens",
    "gru-2x64-120-both",
    "embed-10k-16x26-own",
    "embed-100k-32x8",
    "tabular-30",
    "tabular-100",
)
_TOGETHER = 4  # cells of one process
_LINE = re.compile(r"^(\S+) +exburn +([\d,]+) samples/s.* first +([\d.]+) s", re.M)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--work", default=",".join(WORKS))
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--epochs", default="3")
    parser.add_argument("--json", type=Path)
    args, more = parser.parse_known_args()  # others are breadth.py's
    end, works = time.monotonic() + args.seconds, args.work.split(",")
    trees = {"before": args.before.resolve(), "after": args.after.resolve()}
    lines: dict[str, dict] = {}
    for start in range(0, len(works), _TOGETHER):
        some = works[start : start + _TOGETHER]
        for work in some:
            lines[work] = {"work": work}
        for name, tree in trees.items():
            left = end - time.monotonic()
            if left < 5:
                break
            options = [*more, "--epochs", args.epochs, "--seconds", str(left)]
            for work, speed, first in measured(tree, some, options):
                lines[work] |= {name: speed, f"first_{name}": first}
        for said in (lines[work] for work in some):
            if len(said) == 5:
                said["ratio"] = round(said["after"] / said["before"], 4)
            print(json.dumps(said), flush=True)
        if args.json:
            args.json.write_text(json.dumps(lines, indent=1))
    ratios = {work: said["ratio"] for work, said in lines.items() if "ratio" in said}
    print(json.dumps({"slower": {w: r for w, r in ratios.items() if r < 0.97}}))


def measured(
    tree: Path, works: list[str], options: list[str]
) -> Iterator[tuple[str, float, float]]:
    """Cells of a checkout: samples/s, and seconds of the first epoch."""
    command = [sys.executable, "benchmarks/breadth.py", "--work", ",".join(works)]
    command += ["--peers", "exburn", *options]
    process = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, text=True)
    for match in _LINE.finditer(process.stdout):
        yield match[1], float(match[2].replace(",", "")), float(match[3])


if __name__ == "__main__":
    main()
