"""A model's weights written down, and read back."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from exburn.core.precision import is_float
from exburn.elixir.management.values import parameters, update_params
from exburn.errors import (
    ArgumentError,
    DTypeError,
    FileFormatError,
    unknown_name,
)
from exburn.errors.boundary import api_boundary
from exburn.runtime.files.atomic import write_atomically
from exburn.runtime.files.ordinary import BytesSource, read_whole
from exburn.saving.shards import TensorFile, tensor_bytes

__all__ = ["deserialize_params", "export_params", "import_params", "serialize_params"]

_FORMAT = "exburn-parameters-1"
_FORMATS = ("json", "safetensors")
#: JSON has no numbers for these.
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
#: Nx' names of types, which the JSON files of ExBurn (Elixir) use.
_NX = {"f": "float", "bf": "bfloat", "s": "int", "u": "uint", "c": "complex"}


@api_boundary
def serialize_params(model: Any) -> bytes:
    """All weights as the bytes of a safetensors file.

    Args:
        model: A built model.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> data = serialize_params(model)
        >>> deserialize_params(model, data) is model
        True
    """
    arrays = {path: np.asarray(value) for path, value in parameters(model).items()}
    return tensor_bytes(arrays, format=_FORMAT)


@api_boundary
def deserialize_params(model: Any, data: bytes) -> Any:
    """Puts the weights of `serialize_params` into a model. All or nothing.

    Args:
        model: A built model of the same architecture.
        data: What `serialize_params` returned.

    Returns:
        The model.

    Raises:
        DTypeError: These are no bytes.
        FileFormatError: The bytes are damaged, or of another model.
        ShapeError: A shape differs.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> deserialize_params(model, serialize_params(model)) is model
        True
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise DTypeError(
            "deserialize_params", f"bytes are needed, received {type(data).__name__}"
        )
    source = BytesSource(bytes(data), op="deserialize_params")
    with TensorFile(source, op="deserialize_params") as file:
        arrays = file.read(file.entries)
    return _replace_all(model, arrays, "deserialize_params")


@api_boundary
def export_params(model: Any, path: Any = None, *, format: str | None = None) -> Any:
    """Writes all weights in a format that other programs read.

    Args:
        model: A built model.
        path: File to write, atomically; None returns the contents.
        format: ``"json"``, ``{path: {shape, type, data}}`` with the numbers in row
            order, or ``"safetensors"``; by default what the file's suffix says.

    Returns:
        The path; without one, a ``str`` (JSON) or ``bytes``.

    Raises:
        UnknownNameError: An unknown format.

    Example:
        >>> import exburn, json
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> json.loads(export_params(model, format="json"))["dense/bias"]
        {'shape': [3], 'type': 'float32', 'data': [0.0, 0.0, 0.0]}
    """
    format = _format("export_params", path, format)
    if format == "safetensors":
        data: str | bytes = serialize_params(model)
    else:
        data = json.dumps(
            {
                name: {
                    "shape": list(value.shape),
                    "type": jnp.dtype(value.dtype).name,
                    "data": _to_json(value),
                }
                for name, value in parameters(model).items()
            },
            allow_nan=False,
        )
    if path is None:
        return data
    raw = data if isinstance(data, bytes) else data.encode()
    write_atomically(Path(path), lambda file: file.write(raw))
    return Path(path)


@api_boundary
def import_params(model: Any, source: Any, *, format: str | None = None) -> Any:
    """Puts the weights that `export_params` wrote into a model. All or nothing.

    Args:
        model: A built model of the same architecture.
        source: A path, or the contents: JSON, or ``bytes`` beside a format.
        format: ``"json"`` or ``"safetensors"``; by default what the suffix says.

    Returns:
        The model.

    Raises:
        FileFormatError: Damaged contents, or those of another model.
        ArgumentError: There is no such file, or bytes without a format.
        DTypeError: This is neither a path nor contents.

    Example:
        >>> import tempfile
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> path = tempfile.mkdtemp() + "/weights.json"
        >>> _ = export_params(model, path)
        >>> import_params(model, path) is model
        True
    """
    op, contents = "import_params", source
    if isinstance(source, str | os.PathLike) and not _is_json(source):
        path = Path(source)
        format = _format(op, path, format)
        contents = read_whole(path, op)
    elif not isinstance(source, str | bytes | bytearray):
        raise DTypeError(
            op, f"a path or contents are needed, received {type(source).__name__}"
        )
    elif format is None and not isinstance(source, str):
        raise ArgumentError(op, "bytes need a format", hint='format="safetensors"')
    format = _format(op, None, format)
    if format == "safetensors":
        return deserialize_params(model, contents)
    return _replace_all(model, _from_json(contents), op)


def _is_json(source: Any) -> bool:
    """Whether a string is a document, and not the name of a file."""
    return isinstance(source, str) and source.lstrip()[:1] in ("{", "[")


def _format(op: str, path: Any, format: str | None) -> str:
    if format is None:
        format = Path(path).suffix.lstrip(".") if path is not None else "json"
    if format not in _FORMATS:
        raise unknown_name("format", format, _FORMATS, op=op)
    return format


def _to_json(value: Any) -> list[Any]:
    """Numbers that read back to the same bits; JSON has no NaN and no infinity."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":  # bfloat16 and its kin
        array = array.astype(np.float32)
    flat = array.ravel().tolist()
    return [v if math.isfinite(v) else str(v) for v in flat]


def _from_json(source: str | bytes) -> dict[str, np.ndarray]:
    try:
        return {name: _array(entry) for name, entry in json.loads(source).items()}
    except (
        AttributeError,
        KeyError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise FileFormatError(
            "import_params",
            "the contents are not {path: {shape, type, data}} in JSON",
            {"cause": f"{type(error).__name__}: {error}"},
        ) from error


def _array(entry: Mapping[str, Any]) -> np.ndarray:
    """The array that an entry describes in full, or one of several errors."""
    dtype, shape = jnp.dtype(_dtype_name(entry["type"])), entry["shape"]
    values = [_NOT_FINITE[v] if isinstance(v, str) else v for v in entry["data"]]
    kind = float if is_float(dtype) else int
    if not (is_float(dtype) or dtype.kind in "biu"):
        raise TypeError(f"{dtype} is no type of numbers")
    if any(not isinstance(n, int) or n < 0 for n in shape):
        raise ValueError(f"{shape} is no shape")
    if any(not isinstance(v, int | kind) for v in values):
        raise TypeError(f"the data are not all of {dtype}")
    return np.array(values, dtype).reshape(shape)


def _dtype_name(name: str) -> str:
    """A dtype's name; Nx' ``f32`` and ``s64`` are understood, too."""
    kind = name.rstrip("0123456789")
    return _NX.get(kind, kind) + name[len(kind) :]


def _replace_all(model: Any, arrays: Mapping[str, Any], op: str) -> Any:
    own = parameters(model)
    missing, extra = set(own) - set(arrays), set(arrays) - set(own)
    if missing or extra:
        raise FileFormatError(
            op,
            "the weights belong to another model",
            {
                "missing": ", ".join(sorted(missing)) or "none",
                "not in the model": ", ".join(sorted(extra)) or "none",
            },
        )
    return update_params(model, arrays)
