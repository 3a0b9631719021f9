"""One job of a converter, in a process of its own: ``python -P job.py SCRIPT FOLDER``.

It imports nothing of ExBurn. SCRIPT is a module with ``run(job, folder, enter)``, which
names each stage that it enters and returns what is to be reported. ``job.json`` in the
folder is the job. Where it lists ``pieces``, each of them is tried in a process of its
own, whatever becomes of the others: the module has ``load_packages()``, which the forks
share, and ``load(program, piece, target)``, which converts a program and returns what
computes its outputs by name.

``result.json`` holds the stage that was reached, and the report or an error.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import sys
import tempfile
import traceback
from typing import Any

DRAWS = 2  # inputs of each piece


def main(script: pathlib.Path, folder: pathlib.Path) -> None:
    job = json.loads((folder / "job.json").read_text())
    sys.path[:0] = [str(script.parent)]  # the script, and what it needs beside it
    sys.path.extend(p for p in job["path"] if p not in sys.path)
    report: dict[str, Any] = {}

    def enter(stage: str) -> None:
        report["stage"] = stage
        (folder / "result.json").write_text(json.dumps(report))

    try:
        converter = importlib.import_module(script.stem)
        if "pieces" in job:
            enter("trying its operations")
            try_each(converter, folder, job["pieces"])
        else:
            report |= converter.run(job, folder, enter) or {}
        report["done"] = True
    except BaseException as error:
        report["error"] = f"{type(error).__name__}: {error}"
        traceback.print_exc()
        raise
    finally:
        (folder / "result.json").write_text(json.dumps(report))


def try_each(converter: Any, folder: pathlib.Path, pieces: list[dict]) -> None:
    """Converts and runs each piece in a process of its own, one after another."""
    converter.load_packages()
    for piece in pieces:
        child = os.fork()
        if not child:
            os._exit(try_one(converter, folder, piece))
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            cause = f"the converter died of signal {os.WTERMSIG(status)}"
            (folder / f"{piece['name']}.json").write_text(json.dumps(cause))


def try_one(converter: Any, folder: pathlib.Path, piece: dict) -> int:
    """Writes a piece's outputs, or why there are none."""
    import numpy as np

    name = piece["name"]
    with tempfile.TemporaryFile("w+") as stderr:
        os.dup2(stderr.fileno(), 2)  # where MLIR says what it could not do
        try:
            run = converter.load(folder / f"{name}.stablehlo", piece, folder / name)
            for draw in range(DRAWS):
                inputs = dict(np.load(folder / f"{name}.in_{draw}.npz"))
                outputs: dict[str, Any] = run(inputs)
                np.savez(folder / f"{name}.out_{draw}.npz", **outputs)
            return 0
        except BaseException as error:
            stderr.seek(0)
            lines = [line for line in stderr.read().splitlines() if "error:" in line]
            text = lines[0] if lines else f"{type(error).__name__}: {error}"
            (folder / f"{name}.json").write_text(json.dumps(" ".join(text.split())))
            return 1


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
