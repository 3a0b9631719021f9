"""A mobile bundle tried as a device would: from its contract alone."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from exburn.errors import ArgumentError, ExportError, ModelFormatError, require
from exburn.errors.boundary import api_boundary
from exburn.export.comparison import difference
from exburn.export.formats import FORMATS
from exburn.runtime.files.ordinary import read_whole
from exburn.saving.seal import read_document

FORMAT = "exburn-mobile-1"
CONTRACT, GOLDEN = "contract.json", "golden.safetensors"
# What runs each file here: its module, if it can run here at all.
_RUNTIMES = {
    "litert": lambda: "ai_edge_litert",
    "onnx": lambda: "onnxruntime",
    "coreml": lambda: "coremltools" if sys.platform == "darwin" else None,
}


@api_boundary
def verify(folder: Any) -> dict[str, str]:
    """Checks a mobile bundle: its digests, and its outputs on the golden inputs.

    Each file is run by the runtime that it is for, where that is installed.

    Args:
        folder: The bundle, or its contract.

    Returns:
        For each file what was found: ``"equal, greatest error 3.1e-07"``, or why it was
        not run.

    Raises:
        ArgumentError: There is no bundle.
        ModelFormatError: A file is missing or damaged.
        ExportError: The outputs are not the golden ones.

    Example:
        >>> verify("no/such/app")
        Traceback (most recent call last):
        exburn.errors.ArgumentError: verify: there is no mobile bundle in 'no/such/app'
          → Write one: model.export("app", format="mobile", samples=x[:8]).
    """
    folder = Path(folder)
    folder = folder.parent if folder.name == CONTRACT else folder
    contract = _contract(folder)
    golden = _golden(folder, contract)
    verdicts = {}
    for kind, about in contract["files"].items():
        _check_digests(folder, kind, about)
        module = _RUNTIMES[kind]()
        if module is None:
            verdicts[kind] = "not run: Core ML runs on macOS"
        elif importlib.util.find_spec(module) is None:
            verdicts[kind] = f"not run: {module} is not installed"
        else:
            error, apart = golden_errors(folder, contract, kind, golden)
            integers = about.get("integers", 0)
            if not (error <= about["tolerance"] and apart <= integers):
                raise ExportError(
                    "verify",
                    f"{about['path']} computes something else than the golden outputs",
                    {
                        "greatest error": error,
                        "tolerance": about["tolerance"],
                        "integers differ by": f"{apart:.0f}, {integers} at most",
                    },
                    hint="Export the bundle again.",
                )
            verdicts[kind] = f"equal, greatest error {error:.1e}"
    return verdicts


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digests(path: Path) -> Any:
    """A file's digest; a folder's files with theirs, by name."""
    if path.is_file():
        return digest(path)
    files = sorted(each for each in path.rglob("*") if each.is_file())
    return {str(each.relative_to(path).as_posix()): digest(each) for each in files}


def _contract(folder: Path) -> dict[str, Any]:
    path = folder / CONTRACT
    if not path.is_file():
        raise ArgumentError(
            "verify",
            f"there is no mobile bundle in {str(folder)!r}",
            hint='Write one: model.export("app", format="mobile", samples=x[:8]).',
        )
    contract = read_document(path, FORMAT, "verify")
    try:
        fits = isinstance(contract["golden"]["path"], str) and all(
            kind in _RUNTIMES
            and Path(about["path"]).name == about["path"]
            and isinstance(about["tolerance"], int | float)
            for kind, about in contract["files"].items()
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise _damage_error(CONTRACT, str(error)) from error
    if not fits:
        raise _damage_error(CONTRACT, "it names what a bundle does not have")
    return contract


def _golden(folder: Path, contract: Mapping[str, Any]) -> dict[str, np.ndarray]:
    files = require("safetensors.numpy", "verify", "it needs safetensors")
    _check_digests(folder, "golden", contract["golden"])
    return files.load(read_whole(folder / GOLDEN, "verify"))


def _check_digests(folder: Path, kind: str, about: Mapping[str, Any]) -> None:
    path = folder / about["path"]
    if not path.exists():
        raise _damage_error(about["path"], "it is missing")
    if digests(path) != about["sha256"]:
        raise _damage_error(about["path"], "its bytes are not those that were written")


def _damage_error(name: str, cause: str) -> ModelFormatError:
    return ModelFormatError(
        "verify", f"the bundle's {name} is damaged", {"cause": cause}
    )


class _Names(NamedTuple):
    """A file's names in the contract's order, and its rows."""

    input_names: list[str]
    output_names: list[str]
    rows: int | None


def golden_errors(
    folder: Path, contract: Mapping[str, Any], kind: str, golden: Mapping[str, Any]
) -> tuple[float, float]:
    """The greatest difference of a file's outputs from the golden ones.

    Returns:
        That of floats, as a part of the greatest; and that of integers and booleans.
    """
    about = contract["files"][kind]
    inputs = [each["name"] for each in contract["inputs"]]
    outputs = [each["name"] for each in contract["outputs"]]
    names = _Names(
        [about["inputs"][name] for name in inputs],
        [about["outputs"][name] for name in outputs],
        about["rows"],
    )
    _, runs = FORMATS[kind].writer.runner(names, folder / about["path"])
    worst, apart = 0.0, 0.0
    for run in runs:
        values = run([golden[f"input/{name}"] for name in inputs])
        for name, value in zip(outputs, values, strict=True):
            reference = golden[f"output/{name}"]
            error = difference(reference, np.asarray(value))
            if reference.dtype.kind in "biu":
                apart = max(apart, error)
            else:
                worst = max(worst, error)
    return worst, apart
