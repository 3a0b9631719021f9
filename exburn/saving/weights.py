"""A model's weights as one safetensors file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from exburn.errors import ArgumentError, FileFormatError, ShapeError
from exburn.saving.atomic import write_atomically
from exburn.traversal import iter_weights
from exburn.weights import assign

__all__ = ["load_weights", "save_weights"]

_FORMAT = "exburn-weights-1"


def save_weights(model: Any, filepath: Any, *, overwrite: bool = True) -> Path:
    """Writes every weight under its path; the old file survives any failure.

    Args:
        model: A built model.
        filepath: Target; ``.safetensors`` is appended if it has no suffix.
        overwrite: Whether an existing file may be replaced.

    Raises:
        ArgumentError: The file exists and ``overwrite`` is false; no such folder.
    """
    path = Path(filepath)
    if not path.suffix:
        path = path.with_name(path.name + ".safetensors")
    if path.suffix in (".h5", ".keras"):
        raise ArgumentError(
            "save_weights",
            f"ExBurn writes safetensors files, not {path.suffix!r}",
            hint=f"Use {path.name.split('.')[0]}.safetensors",
        )
    if path.exists() and not overwrite:
        raise ArgumentError(
            "save_weights",
            f"{path} exists and overwrite=False",
            hint="Choose another name, or pass overwrite=True.",
        )
    if not path.parent.is_dir():
        raise ArgumentError(
            "save_weights",
            f"the folder {path.parent} does not exist",
            hint="Make it first: Path(folder).mkdir(parents=True).",
        )
    arrays = {name: np.asarray(w.get_value()) for name, w, _ in iter_weights(model)}
    data = safetensors.numpy.save(arrays, metadata={"format": _FORMAT})
    write_atomically(path, lambda file: file.write(data))
    return path


def load_weights(model: Any, filepath: Any, *, skip_mismatch: bool = False) -> None:
    """Reads weights by path. Nothing is changed unless everything fits.

    Args:
        model: A built model.
        filepath: A file of ``save_weights``, or any safetensors file of the same names.
        skip_mismatch: Leaves out weights that are missing or of another shape.

    Raises:
        FileFormatError: The file is damaged, or weights are missing or unexpected.
        ShapeError: A weight has another shape.
    """
    path = Path(filepath)
    if not path.exists() and not path.suffix:
        path = path.with_name(path.name + ".safetensors")
    if not path.is_file():
        raise ArgumentError(
            "load_weights",
            f"there is no file {path}",
            {"received": repr(filepath), "folder": path.parent.resolve()},
        )
    own = {name: w for name, w, _ in iter_weights(model)}
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            names = set(file.keys())
            shapes = {n: tuple(file.get_slice(n).get_shape()) for n in names}
            if not skip_mismatch:
                _compare(own, shapes)
            fitting = [n for n in own if shapes.get(n) == tuple(own[n].shape)]
            arrays = {n: file.get_tensor(n) for n in fitting}
    except safetensors.SafetensorError as error:
        raise FileFormatError(
            "load_weights",
            f"{path} is no intact safetensors file",
            {"cause": error},
            hint="Write it again with save_weights, or take another copy.",
        ) from error
    for name, array in arrays.items():
        assign(own[name], array)


def _compare(own: dict[str, Any], shapes: dict[str, tuple]) -> None:
    missing, extra = set(own) - set(shapes), set(shapes) - set(own)
    if missing or extra:
        raise FileFormatError(
            "load_weights",
            "the file belongs to another model",
            {
                "missing in the file": ", ".join(sorted(missing)) or "none",
                "not in the model": ", ".join(sorted(extra)) or "none",
            },
            hint="skip_mismatch=True loads what fits.",
        )
    for name, weight in own.items():
        if shapes[name] != tuple(weight.shape):
            raise ShapeError(
                "load_weights",
                f"{name} has shape {tuple(weight.shape)}, the file has {shapes[name]}",
                hint="skip_mismatch=True loads what fits.",
            )
