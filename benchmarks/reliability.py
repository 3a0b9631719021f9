"""What is left after kills, full disks, flipped bits and interruptions.

``python benchmarks/reliability.py`` runs every case against ExBurn, Keras 3, Orbax
alone and safetensors alone, prints one table and writes
``benchmarks/results/reliability.json``; ``--quick`` takes a few cases of each.
``--only TEXT`` runs the rows whose command contains the text, and keeps the others.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "reliability.json"
ENVIRONMENT = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    "PYTHONSAFEPATH": "1",
    "EXBURN_COMPILATION_CACHE": "off",
}
OURS = ("exburn checkpoint", "exburn checkpoint, asynchronous", "exburn model.save")
PEERS = (
    "orbax CheckpointManager",
    "keras BackupAndRestore",
    "keras model.save",
    "safetensors save_file",
)


def plan(quick: bool) -> list[list[str]]:
    """The command of every row, most important first."""
    rows = []
    for name in OURS + PEERS:
        slow = name.startswith("keras")
        kills = 5 if quick else 210 if name in OURS else 30
        rows.append(["crashes.py", name, "operation", "8" if quick else "0"])
        flips = (20, 5) if quick else (100, 20) if slow else (1000, 200)
        rows.append(["damage.py", name, *map(str, flips)])
        rows.append(["crashes.py", name, "random", str(kills)])
    for name in (OURS[0], OURS[2]):
        rows.append(["crashes.py", name, "error", "8" if quick else "0"])
    for name, count in (("exburn", 30), ("keras", 8)):
        rows.append(["interrupted.py", name, "3", "2" if quick else str(count)])
        rows.append(["interrupted.py", name, "epoch", "2" if quick else "8"])
    return rows


def table(rows: list[dict]) -> str:
    """The rows as a Markdown table."""
    lines = ["| system | case | cases | outcome |", "|---|---|--:|---|"]
    titles = {
        "operation": "SIGKILL at every file operation of a save-and-prune",
        "random": "SIGKILL at random moments of a save-and-prune",
        "error": "ENOSPC, EIO or EACCES at every file operation",
        "damage": "single-bit flips and truncations",
    }
    for row in rows:
        kind = row["kind"]
        if kind == "damage":
            cases = f"{row['flips']} + {row['truncations']}"
            outcome = (
                f"{row['detected']} detected, {row['harmless']} harmless, "
                f"**{row['silent']} silently wrong**"
            )
        elif kind == "resume":
            cases = str(row["cases"])
            outcome = (
                f"**{row['equal']} byte-equal**, {row['failed']} did not start again, "
                f"after {row['kills']} kills"
            )
            titles[kind] = (
                f"training killed and resumed, saved every {row['save_freq']}"
            )
        else:
            cases = f"{row['cases']} of {row['operations']}"
            if kind == "random":  # the others had ended before they were killed
                cases = str(row["stopped"])
            outcome = (
                f"**{row['lost']} lost**, {row['bad']} listed but not restorable, "
                f"{row['litter']} with litter"
            )
            if kind == "error":
                outcome += f", {row['untyped']} untyped errors"
        lines.append(f"| {row['system']} | {titles[kind]} | {cases} | {outcome} |")
    return "\n".join(lines)


def measure(rows: list[list[str]], path: Path, quick: bool) -> dict[str, dict]:
    """Runs the rows; the file's other rows stay, and it is written after each."""
    kept = {}
    if path.exists():
        kept = {r["command"]: r for r in json.loads(path.read_text())["rows"]}
    for arguments in rows:
        command = " ".join(arguments)
        done = subprocess.run(
            [sys.executable, str(HERE / arguments[0]), *arguments[1:]],
            env=os.environ | ENVIRONMENT,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            sys.exit(f"{command} failed:\n{done.stdout}\n{done.stderr[-3000:]}")
        row = json.loads(done.stdout.strip().splitlines()[-1])
        kept[command] = {"command": command, **row}
        print(command, row, flush=True)
        write(path, list(kept.values()), quick)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = [row for row in plan(options.quick) if options.only in " ".join(row)]
    if not options.only:
        options.json.unlink(missing_ok=True)
    print(table(list(measure(rows, options.json, options.quick).values())))


def write(path: Path, rows: list[dict], quick: bool) -> None:
    packages = ("jax", "keras", "orbax-checkpoint", "safetensors", "tensorstore")
    path.write_text(
        json.dumps(
            {
                "date": datetime.date.today().isoformat(),
                "quick": quick,
                "python": sys.version.split()[0],
                "versions": {n: importlib.metadata.version(n) for n in packages},
                "rows": rows,
            },
            indent=1,
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
