"""A mobile bundle tried as a device would: from its contract alone."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exburn.errors import ArgumentError, ExportError, ModelFormatError, require
from exburn.models.interop import predict

FORMAT = "exburn-mobile-1"
CONTRACT, GOLDEN = "contract.json", "golden.safetensors"
# What runs each file here: its module, if it can run here at all.
_RUNTIMES = {
    "litert": lambda: "ai_edge_litert",
    "onnx": lambda: "onnxruntime",
    "coreml": lambda: "coremltools" if sys.platform == "darwin" else None,
}


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
    found = {}
    for kind, about in contract["files"].items():
        _check_digests(folder, kind, about)
        module = _RUNTIMES[kind]()
        if module is None:
            found[kind] = "not run: Core ML runs on macOS"
        elif importlib.util.find_spec(module) is None:
            found[kind] = f"not run: {module} is not installed"
        else:
            error = _error(folder, contract, about, golden)
            if not error <= about["tolerance"]:
                raise ExportError(
                    "verify",
                    f"{about['path']} computes something else than the golden outputs",
                    {"greatest error": error, "tolerance": about["tolerance"]},
                    hint="Export the bundle again.",
                )
            found[kind] = f"equal, greatest error {error:.1e}"
    return found


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


def greatest_error(found: Any, wanted: Any) -> float:
    """The greatest difference, as a part of the greatest wanted number, if over 1.

    Example:
        >>> greatest_error(np.array([1.0, 102.0]), np.array([1.0, 100.0]))
        0.02
    """
    found, wanted = (np.asarray(v).astype(np.float64) for v in (found, wanted))
    if found.shape != wanted.shape:
        return float("inf")
    if not wanted.size:
        return 0.0
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(found - wanted))
    finite = np.abs(wanted[np.isfinite(wanted)])
    error = float(np.max(apart)) / max(1.0, float(finite.max(initial=0.0)))
    return float("inf") if np.isnan(error) else error


def _contract(folder: Path) -> dict[str, Any]:
    path = folder / CONTRACT
    if not path.is_file():
        raise ArgumentError(
            "verify",
            f"there is no mobile bundle in {str(folder)!r}",
            hint='Write one: model.export("app", format="mobile", samples=x[:8]).',
        )
    try:
        contract = json.loads(path.read_text())
        fits = contract["format"] == FORMAT and all(
            kind in _RUNTIMES
            and Path(about["path"]).name == about["path"]
            and isinstance(about["tolerance"], int | float)
            for kind, about in contract["files"].items()
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(CONTRACT, str(error)) from error
    if not fits:
        raise _damaged(CONTRACT, "it is of another format")
    return contract


def _golden(folder: Path, contract: Mapping[str, Any]) -> dict[str, np.ndarray]:
    files = require("safetensors.numpy", "verify", "it needs safetensors")
    _check_digests(folder, "golden", contract["golden"])
    return files.load((folder / GOLDEN).read_bytes())


def _check_digests(folder: Path, kind: str, about: Mapping[str, Any]) -> None:
    path = folder / about["path"]
    if not path.exists():
        raise _damaged(about["path"], "it is missing")
    if digests(path) != about["sha256"]:
        raise _damaged(about["path"], "its bytes are not those that were written")


def _damaged(name: str, cause: str) -> ModelFormatError:
    return ModelFormatError(
        "verify", f"the bundle's {name} is damaged", {"cause": cause}
    )


def _error(
    folder: Path, contract: Mapping[str, Any], about: Mapping[str, Any], golden: Any
) -> float:
    rows = contract["golden"]["rows"]
    feed = {
        about["inputs"][each["name"]]: golden[f"input/{each['name']}"]
        for each in contract["inputs"]
    }
    found = predict(folder / about["path"], feed, batch_size=about.get("rows") or rows)
    names = [each["name"] for each in contract["outputs"]]
    found = found if isinstance(found, Mapping) else {about["outputs"][names[0]]: found}
    return max(
        greatest_error(found[about["outputs"][name]], golden[f"output/{name}"])
        for name in names
    )
