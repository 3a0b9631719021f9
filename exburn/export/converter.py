"""Converters of other projects, each run in a process of its own.

They are compilers in C++ that answer what they cannot express with an abort, write to
the standard error, and bring versions of MLIR that must not meet JAX's in one process.
So a conversion is a job: a folder with ``job.json`` and programs of StableHLO, for a
script that imports nothing of ExBurn. It leaves files and ``result.json`` there: `job`.
"""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from jax import export as jax_export

from exburn.errors import ExportError, MissingDependencyError
from exburn.runtime.portable import portable

JOB, RESULT = "job.json", "result.json"
_FRAME = Path(__file__).with_name("job.py")
# How MLIR and the converters name an operation that they have no rule for.
_OPERATION = re.compile(r"\b((?:stablehlo|chlo|vhlo|tfl)\.[a-z]\w*)", re.IGNORECASE)


def require_packages(modules: Sequence[str], op: str, reason: str, extra: str) -> None:
    """Refuses before any work if a converter's packages are not installed.

    They are looked for and not imported: a converter is loaded by its own process.

    Args:
        modules: Names of their root modules.
        op: The operation that needs them.
        reason: What they are needed for.
        extra: ExBurn's extra that installs them.

    Raises:
        MissingDependencyError: One cannot be found.

    Example:
        >>> require_packages(["json"], "export", "it is needed", "litert")
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        packages = " ".join(name.replace("_", "-") for name in missing)
        raise MissingDependencyError(
            op,
            reason,
            {"missing": ", ".join(missing)},
            hint=f"pip install 'exburn[{extra}]'  (or: pip install {packages})",
        )


def artifact(function: Any, specs: Sequence[Any], target: str) -> bytes:
    """The portable artifact of StableHLO of a function of arrays.

    Args:
        specs: Specs of its arguments, of known sizes.
        target: What the program is traced for: see ``portable``.
    """
    with portable(target):
        exported = jax_export.export(jax.jit(function), platforms=("cpu",))(*specs)
    return exported.mlir_module_serialized


def run_converter(
    script: Path, folder: Path, job: dict[str, Any], *, target: str
) -> dict[str, Any]:
    """Runs a script over the job in a folder, and returns what it reports.

    Args:
        script: A file of Python that has what `job` calls.
        folder: Where the inputs are, and the outputs will be.
        job: What the script is to do; gets this process' ``sys.path``.
        target: What is converted to, as errors name it.

    Raises:
        ExportError: The converter refuses, aborts or is killed.
    """
    (folder / JOB).write_text(json.dumps({**job, "path": sys.path}))
    (folder / RESULT).unlink(missing_ok=True)
    run = subprocess.run(
        [sys.executable, "-P", str(_FRAME), str(script), str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    report = folder / RESULT
    result = json.loads(report.read_text()) if report.exists() else {}
    if run.returncode == 0 and result.get("done"):
        return result
    raise conversion_error(target, run.returncode, result, run.stderr)


def conversion_error(
    target: str, code: int, result: dict[str, Any], stderr: str
) -> ExportError:
    """The error for a converter that did not finish.

    Args:
        target: What was converted to.
        result: What it had reported until then.
    """
    stage = result.get("stage", "starting")
    if code < 0:
        names = {number.value: number.name for number in signal.Signals}
        reason = f"{target}: the process was ended by {names.get(-code, -code)}"
    else:
        reason = f"{target}: it failed"
    details: dict[str, Any] = {}
    if cause := telling_line(stderr, result.get("error")):
        details["cause"] = cause
    return ExportError("export", f"{reason} while {stage}", details)


def telling_line(stderr: str, error: str | None = None) -> str | None:
    """The line of a converter's output that says most.

    Args:
        error: The exception that it ended with.
    """
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("Traceback", "File "))]
    naming = [line for line in lines if _OPERATION.search(line) and "error" in line]
    if naming:
        return naming[0]
    return error or next((line for line in lines if "error" in line.lower()), None)
