"""All benchmarks that need the GPU, in one go; goes on where it was interrupted.

    python benchmarks/run_all.py [--only cold_start,scaling] [--seconds 900] [--dry]

Each benchmark writes ``benchmarks/results/NAME-TAG.json``, where the tag is that of the
device (``h200``, ``cpu`` …), and the versions it ran with. What was finished by this
script before, with the same versions, is left out; what was begun goes on. No benchmark
is begun that would probably not end within ``--seconds``. A table of all results comes
last; ``benchmarks/report.py`` puts them into ``docs/benchmarks/``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from process import environment_of, versions
from report import device_tag, tables

FOLDER = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Case:
    """A script, its options, and how long it takes on an H200, in seconds."""

    name: str
    seconds: int
    options: tuple[str, ...] = ()


CASES = (
    Case("overhead", 40),
    Case(
        "throughput",
        130,
        ("--work", "mlp,cnn,transformer,lstm", "--peers", "exburn,scan,keras")
        + ("--epochs", "4"),
    ),
    Case("cold_start", 200, ("--rounds", "1")),
    Case("building", 250, ("--rounds", "1")),
    Case("scaling", 150),
    Case("inference", 120),
    Case("feeding", 120),
    Case("large", 400),
    Case("large_inference", 300),
    Case("breadth", 1_400),
    Case("kernels", 25),
    Case("precision", 80),
    Case("quantization", 100, ("--size", "large", "--kernels")),
    Case("serving", 60, ("--rounds", "5")),
    Case("reference", 90),
    Case(
        "sweep",
        900,
        ("--lanes", "1,64,256", "--peers", "exburn,alone,vmap")
        + ("--bytes", "--halving"),
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default=",".join(case.name for case in CASES))
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--results", type=Path, default=FOLDER / "results")
    parser.add_argument("--again", action="store_true", help="measure all anew")
    parser.add_argument("--dry", action="store_true", help="say what would run")
    args = parser.parse_args()
    environment = versions()
    tag, begun = device_tag(environment["device"]), time.monotonic()
    args.results.mkdir(parents=True, exist_ok=True)
    book = args.results / f"finished-{tag}.json"
    finished = json.loads(book.read_text()) if book.exists() else {}
    for case in CASES:
        if case.name not in args.only.split(","):
            continue
        file = args.results / f"{case.name}-{tag}.json"
        if finished.get(case.name) == environment and not args.again:
            print(f"{case.name}: finished before", flush=True)
            continue
        left = args.seconds - (time.monotonic() - begun)
        if left < case.seconds:
            print(f"{case.name}: left out, it takes about {case.seconds} s", flush=True)
            continue
        command = [sys.executable, str(FOLDER / f"{case.name}.py"), *case.options]
        command += ["--json", str(file)]
        print("===", " ".join(command), flush=True)
        if args.dry:
            continue
        stale = file.exists() and _versions_of(file) != environment
        if stale or args.again:
            file.unlink(missing_ok=True)
        if subprocess.run(command, env=environment_of()).returncode == 0:
            finished[case.name] = environment
            book.write_text(json.dumps(finished, indent=1))
    for name, lines in tables(args.results).items():
        if name.endswith(f"-{tag}"):
            print(f"\n{name}", *lines, sep="\n")


def _versions_of(file: Path) -> dict | None:
    return json.loads(file.read_text()).get("versions")


if __name__ == "__main__":
    main()
