"""Saves that are killed, or whose operations on files fail; what is left afterwards?

Every case starts from the same folder with two good states. A forked child saves the
third, and is killed at one operation, or one operation fails; or it saves without end
and is killed at a random moment. Then another process, which has no part in the
saving, opens the folder. One line of JSON for each case.

    PYTHONSAFEPATH=1 python benchmarks/crashes.py "ExBurn checkpoint" kill
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import faults  # noqa: E402
from savers import SYSTEMS, System  # noqa: E402

ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES)
KINDS = ("kill", "random", "error", "full")


Reader = Callable[[str, str], dict[str, Any]]


def cases(
    look: Reader,
    name: str,
    kind: str,
    *,
    first: int = 0,
    count: int = 0,
    step: int = 1,
) -> Iterator[dict[str, Any]]:
    """The outcome of each case.

    Args:
        look: Opens a folder in another process.
        name: The system.
        kind: ``"kill"``: killed at each operation; ``"random"``: killed at random
            moments; ``"error"``: each operation fails, with each error; ``"full"``:
            from an operation on, for each, nothing finds room on the disk.
        first: The case to begin with.
        count: How many random moments.
        step: Only every n-th operation.

    Yields:
        ``lost`` (the best, or all that had been saved, is gone; or a save that did not
        complain left nothing), ``bad`` (listed, but not whole), ``litter``, and
        ``untyped`` errors, as 0 or 1; and the ``operations`` of a save that was not
        killed: threads that wait for each other do a tenth more of them now and then,
        so that a place that was counted need not be reached.
    """
    warnings.simplefilter("ignore")
    system = SYSTEMS[name]()
    system.imports()
    with tempfile.TemporaryDirectory() as base:
        start, work = os.path.join(base, "start"), os.path.join(base, "work")
        os.mkdir(start)
        for value in (1, 2):
            if faults.child(lambda v=value: _save(system, start, v), quiet=False):
                raise RuntimeError(f"{name}: the first states could not be saved")
        if kind == "random":
            hits: list[tuple[int, int]] = [(0, 0)] * count
        else:
            reads = kind == "error"
            shutil.copytree(start, work)
            total = faults.operations(lambda: _save(system, work, 3), work, reads=reads)
            shutil.rmtree(work)
            chosen = {"kill": (0,), "error": ERRORS, "full": (errno.ENOSPC,)}[kind]
            places = range(1, total + 1, step)
            hits = [(place, error) for place in places for error in chosen]
        for number, (place, error) in enumerate(hits[first:], first):
            shutil.copytree(start, work)
            case: dict[str, Any] = {"case": number, "of": len(hits), "place": place}
            if kind == "random":
                case["last"] = _killed(system, work, random.Random(f"{name}{number}"))
                outcome, done = None, None
            else:
                outcome, done = _hit(system, work, place, error, kind)
            case |= {"outcome": outcome, "error": errno.errorcode.get(error)}
            case["operations"] = done
            yield case | _judge(system, case, os.listdir(work), look(name, work))
            shutil.rmtree(work)


def _save(system: System, folder: str, value: int) -> None:
    system.start(folder)
    system.save(value)
    system.stop()


def _judge(
    system: System, case: dict[str, Any], names: list[str], seen: dict[str, Any]
) -> dict[str, Any]:
    steps, outcome = set(seen["found"]), case["outcome"]
    newest = 3 if outcome == "saved" else case.get("last", 2)
    lost = max(steps, default=0) < newest or (system.keeps_best and 1 not in steps)
    failed = outcome not in (None, "saved")
    left = [n for n in names if failed and n.startswith(system.hidden or "/")]
    litter = [*seen["litter"], *left]
    judged: dict[str, Any] = {
        "stopped": int(outcome != "saved"),
        "lost": int(lost),
        "bad": int(seen["wrong"] + seen["unreadable"] > 0),
        "litter": int(bool(litter)),
        "untyped": int(failed and bool(system.typed) and outcome not in system.typed),
    }
    if any(judged[key] for key in ("lost", "bad", "litter", "untyped")):
        judged["seen"] = seen | {"litter": litter[:4]}
    return judged


def _hit(
    system: System, work: str, place: int, error: int, kind: str
) -> tuple[str | None, int | None]:
    """What became of a save, and the operations that it did.

    An error's name, or ``"saved"``; None and None if it was killed.
    """
    marker = os.path.join(os.path.dirname(work), "told")

    def tell() -> None:
        try:
            _save(system, work, 3)
            outcome = "saved"
        except Exception as refused:
            outcome = type(refused).__name__
        done = faults.done()
        with open(marker, "w") as file:
            json.dump([outcome, done], file)

    options: dict[str, bool] = {"reads": kind == "error", "stays": kind == "full"}
    status = faults.child(tell, work, at=place, error=error, **options)
    if status == faults.KILLED and not error:
        return None, None
    with contextlib.suppress(FileNotFoundError), open(marker) as file:
        outcome, done = json.load(file)
        os.unlink(marker)
        return outcome, done
    return f"the process ended with {status}", None


def _killed(system: System, work: str, draw: random.Random) -> int:
    """Kills saves without end at a random moment; the last state that was saved."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            system.start(work)
            for value in range(3, 10**6):
                system.save(value)
                os.write(write, (value - system.lag).to_bytes(4, "little"))
        finally:
            os._exit(1)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        begun = time.perf_counter()
        saved = [pipe.read(4), pipe.read(4)]
        time.sleep(draw.random() * min(time.perf_counter() - begun, 0.2))
        os.kill(pid, 9)
        if os.waitpid(pid, 0)[1] != 9:
            raise RuntimeError("the process ended before it was killed")
        rest = pipe.read()
    saved += [rest[i : i + 4] for i in range(0, len(rest), 4)]
    return int.from_bytes(saved[-1], "little")


@contextlib.contextmanager
def reader() -> Iterator[Reader]:
    """Another process, which opens folders."""
    process = subprocess.Popen(
        [sys.executable, "-P", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None

    def look(name: str, folder: str) -> dict[str, Any]:
        print(name, folder, sep="\t", file=process.stdin, flush=True)
        assert process.stdout is not None
        return json.loads(process.stdout.readline())

    try:
        yield look
    finally:
        process.stdin.close()
        process.wait()


def read() -> None:
    """The other process: system and folder on a line, what is in it on a line back."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print
    systems: dict[str, System] = {}
    for line in sys.stdin:
        name, folder = line.rstrip("\n").split("\t")
        if name not in systems:
            systems[name] = SYSTEMS[name]()
            systems[name].imports()
        print(json.dumps(vars(systems[name].look(folder))), file=answers, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--step", type=int, default=1)
    options = parser.parse_args()
    faults.preload()
    which = {"first": options.first, "count": options.count, "step": options.step}
    with reader() as look:
        for case in cases(look, options.system, options.kind, **which):
            print(json.dumps(case), flush=True)


if __name__ == "__main__":
    main() if sys.argv[1:] else read()
