"""What is left after kills, full disks, flipped bits and interruptions.

Every case is tried with ExBurn, Keras 3, Orbax alone and safetensors alone. Each goes
into ``benchmarks/results/reliability.json`` when it has ended; ``--resume`` goes on
from there, and does those rows again whose code or libraries have changed since. The
tables of ``docs/reliability.md`` are written from that file.

    PYTHONSAFEPATH=1 python benchmarks/reliability.py --resume
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE))

from savers import SYSTEMS  # noqa: E402

RESULTS = HERE / "results" / "reliability.json"
PAGE = HERE.parent / "docs" / "reliability.md"
ENVIRONMENT = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    "PYTHONSAFEPATH": "1",
    "EXBURN_COMPILATION_CACHE": "off",
}
LIBRARIES = ("jax", "keras", "orbax-checkpoint", "safetensors", "tensorstore", "h5py")
MEASURED = (  # the parts of ExBurn that are put to the test
    "exburn/saving/checkpoint/*.py",
    "exburn/saving/[ahms]*.py",
    "callbacks/*checkpoint.py",
    "callbacks/backup_and_restore.py",
)
RESUMED = (
    "exburn/training/checkpoint/run_points.py",
    "exburn/training/checkpoint/resume.py",
)
COUNTS = ("stopped", "lost", "bad", "litter", "untyped")  # of crashes.py
COUNTS += ("detected", "harmless", "silent")  # of damage.py
COUNTS += ("kills", "equal", "weights", "failed")  # of interrupted.py
TITLES = {
    "kill": "SIGKILL at every operation",
    "random": "SIGKILL at random moments",
    "error": "ENOSPC, EIO, EACCES at every operation",
    "full": "disk full from an operation on, for every one",
}
UNDAMAGED = ("ExBurn ModelCheckpoint, files",)  # its files are those of model.save
ASYNCHRONOUS = ", asynchronous"
SHORT = (("ExBurn", "epoch"), ("Keras", "3"), ("Keras", "epoch"))
LOCK = threading.Lock()


def plan() -> list[list[str]]:
    """The command of every row."""
    ours = [name for name in SYSTEMS if name.startswith("ExBurn")]
    rows = [["interrupted.py", "ExBurn", "3", "--count", "30"]]
    for names in (ours, [name for name in SYSTEMS if name not in ours]):
        # Orbax' operations are a thousand with reads; every fifth shows what it does.
        share = [] if names is ours else ["--step", "5"]
        rows += [["crashes.py", name, "kill"] for name in names]
        rows += [["crashes.py", name, "random", "--count", "210"] for name in names]
        rows += [
            ["damage.py", name]
            for name in names
            if name not in UNDAMAGED and not name.endswith(ASYNCHRONOUS)
        ]
        rows += [["crashes.py", name, "full"] for name in names]
        rows += [
            ["crashes.py", name, "error", *(share if "Orbax" in name else [])]
            for name in names
        ]
    rows += [["interrupted.py", *row, "--count", "8"] for row in SHORT]
    return rows


def source(command: list[str]) -> str:
    """A digest of the code that a row depends on."""
    paths = [HERE / name for name in (command[0], "savers.py", "faults.c", "faults.py")]
    if command[1].startswith("ExBurn"):
        parts = MEASURED + RESUMED * (command[0] == "interrupted.py")
        paths += [path for part in parts for path in HERE.parent.glob(part)]
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def versions() -> dict[str, str]:
    libraries = {name: importlib.metadata.version(name) for name in LIBRARIES}
    return {"python": sys.version.split()[0], **libraries}


def new_row(command: list[str]) -> dict[str, Any]:
    return {
        "command": " ".join(command),
        "system": command[1],
        "kind": command[2] if command[0] == "crashes.py" else command[0][:-3],
        "source": source(command),
        "versions": versions(),
        "date": datetime.date.today().isoformat(),
        "cases": 0,
        "of": None,
    }


def measure(command: list[str], row: dict[str, Any], path: Path, rows: dict) -> str:
    """Runs the cases of a row that have not been run; what went wrong, if anything."""
    arguments = [*command, "--first", str(row["cases"])]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, str(HERE / arguments[0]), *arguments[1:]],
            env=os.environ | ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            case = json.loads(line)
            with LOCK:
                row["cases"], row["of"] = case["case"] + 1, case["of"]
                for key in COUNTS:
                    if key in case:
                        row[key] = row.get(key, 0) + case[key]
                if "seen" in case:
                    row.setdefault("wrong", []).append(case)
                    del row["wrong"][5:]
                write(path, rows)
        if not process.wait():
            print(row["command"], {k: row[k] for k in COUNTS if k in row}, flush=True)
            return ""
        errors.seek(0)
        return f"{row['command']} failed:\n{errors.read()[-3000:]}"


def write(path: Path, rows: dict[str, dict[str, Any]]) -> None:
    beside = path.with_name(path.name + ".new")
    beside.write_text(json.dumps({"rows": list(rows.values())}, indent=1) + "\n")
    beside.replace(path)


# ---------------------------------------------------------------------- tables
def tables(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Markdown tables, by the names of the places that they go to."""
    crashes = [
        (
            row["system"],
            TITLES[row["kind"]],
            cases(row),
            *(row.get(key, 0) for key in ("lost", "bad", "litter")),
            row["untyped"] if row["system"].startswith("ExBurn") else "–",
        )
        for kind in TITLES
        for row in rows
        if row["kind"] == kind
    ]
    keys = ("detected", "harmless", "silent")
    damage = [
        (row["system"], cases(row), *(row.get(key, 0) for key in keys))
        for row in rows
        if row["kind"] == "damage"
    ]
    keys = ("kills", "equal", "weights", "failed")
    resumed = [
        (row["system"], row["command"].split()[2], cases(row), *(row[k] for k in keys))
        for row in rows
        if row["kind"] == "interrupted"
    ]
    head = ("system", "case", "cases", "lost", "not restorable", "litter", "untyped")
    return {
        "crashes": table(head, crashes),
        "damage": table(
            ("system", "cases", "detected", "harmless", "silently wrong"), damage
        ),
        "resume": table(
            (
                *("system", "saved every", "trainings", "kills", "byte-equal"),
                *("weights alone equal", "did not start again"),
            ),
            resumed,
        ),
        "conditions": conditions(rows),
    }


def cases(row: dict[str, Any]) -> str:
    done, of = row["cases"], row["of"]
    return f"{done}" if done == of else f"{done} of {of}"


def table(head: tuple, rows: list[tuple]) -> str:
    numbers = [i for i, cell in enumerate(rows[0])] if rows else []
    words = {i for i in numbers if any(str(row[i])[:1].isalpha() for row in rows)}
    rule = ["---" if i in words else "--:" for i in range(len(head))]
    lines = [head, rule, *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def conditions(rows: list[dict[str, Any]]) -> str:
    dates = Counter(
        (row["date"], ", ".join(f"{k} {v}" for k, v in row["versions"].items()))
        for row in rows
    )
    return "\n".join(f"{date}: {names}." for date, names in sorted(dates))


def write_page(page: Path, rows: list[dict[str, Any]]) -> None:
    """Puts the tables between the marks of a page."""
    text = page.read_text(encoding="utf-8")
    for name, content in tables(rows).items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(start)
        _, marker, after = rest.partition(end)
        if not marker:
            sys.exit(f"{page} has no place for the table {name!r}")
        text = f"{before}{start}{content}\n{end}{after}"
    page.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resume", action="store_true", help="keep what is done")
    parser.add_argument("--only", default="", help="rows whose command contains this")
    parser.add_argument("--jobs", type=int, default=1, help="rows at a time")
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--tables", action="store_true", help="write the page, no more")
    options = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    failures = []
    if (options.resume or options.tables or options.only) and options.json.exists():
        earlier = json.loads(options.json.read_text())["rows"]
        rows = {row["command"]: row for row in earlier}
    if not options.tables:
        commands = {" ".join(command): command for command in plan()}
        rows = {name: rows.get(name) or new_row(commands[name]) for name in commands}
        due = []
        for name, command in commands.items():
            if options.only not in name:
                continue
            new, row = new_row(command), rows[name]
            same = all(new[key] == row[key] for key in ("source", "versions"))
            if not (options.resume and same):
                rows[name] = row = new
            if row["cases"] != row["of"]:
                due.append((command, row))
        with ThreadPoolExecutor(options.jobs) as pool:
            failures += pool.map(
                lambda item: measure(item[0], item[1], options.json, rows), due
            )
    done = [row for row in rows.values() if row["cases"]]
    write_page(options.page, done)
    for text in tables(done).values():
        print(text, end="\n\n")
    sys.exit("\n".join(filter(None, failures)) or 0)


if __name__ == "__main__":
    main()
