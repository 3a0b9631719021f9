"""ONNX files and sessions, run by onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from exburn.core.symbolic_shapes import describe
from exburn.errors import (
    DataError,
    DTypeError,
    FileFormatError,
    ShapeError,
    require,
)
from exburn.export.open_sizes import solve_sizes
from exburn.export.structure import KEY, decode
from exburn.models.interop.rows import as_dtype, in_batches

# onnxruntime's names of element types.
_DTYPES = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "bool": np.bool_,
    "string": np.object_,
} | {
    f"{sign}int{bits}": np.dtype(f"{sign}int{bits}")
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
}


def is_session(model: Any) -> bool:
    """Whether a value is an ``onnxruntime.InferenceSession``."""
    kind = type(model)
    return kind.__module__.startswith("onnxruntime.") and hasattr(model, "get_inputs")


def load(source: str | bytes) -> Any:
    """A session for a file, or for the bytes of one.

    Raises:
        MissingDependencyError: onnxruntime is not installed.
        FileFormatError: It is no ONNX model.
    """
    reason = "an ONNX model is run by onnxruntime"
    onnxruntime = require("onnxruntime", "predict", reason, extra="onnx")
    try:
        return onnxruntime.InferenceSession(
            source, providers=onnxruntime.get_available_providers()
        )
    except Exception as error:  # onnxruntime's exceptions have no common base
        raise FileFormatError(
            "predict",
            "onnxruntime cannot read the model",
            {"cause": f"{type(error).__name__}: {error}"},
        ) from error


def predict_session(session: Any, x: Any, batch_size: int | None) -> Any:
    """Outputs of a session: an array, or a dict in its order if there are several.

    Those of a file that ``model.export`` wrote come in the model's structure.

    Args:
        session: The ``InferenceSession``.
        x: One array; a list of arrays in the session's order; or a dict by its names.
        batch_size: Rows of a batch. Models of a fixed batch size run in that one.

    Raises:
        DataError, DTypeError, ShapeError: The inputs are not those of the model.
    """
    wanted = session.get_inputs()
    names = [spec.name for spec in wanted]
    values = _by_name(x, names)
    values = [_fit(v, spec) for v, spec in zip(values, wanted, strict=True)]
    outputs = [spec.name for spec in session.get_outputs()]
    about = session.get_modelmeta()
    if about.producer_name == "exburn":  # others' are but names
        shapes = [tuple(spec.shape)[1:] for spec in wanted]
        solve_sizes("predict", shapes, [value.shape[1:] for value in values])

    def run(part: list[Any]) -> Any:
        feed = dict(zip(names, part, strict=True))
        try:
            results = session.run(outputs, feed)
        except Exception as error:  # onnxruntime's exceptions have no common base
            raise DataError(
                "predict",
                "onnxruntime cannot run the model on these inputs",
                {
                    "received": ", ".join(map(describe, part)),
                    "cause": f"{type(error).__name__}: {error}",
                },
            ) from error
        return dict(zip(outputs, results, strict=True))

    fixed = wanted[0].shape[0] if wanted[0].shape else None
    exact = isinstance(fixed, int)
    found = in_batches(
        run, values, fixed if exact else batch_size, padded=exact, exact=exact
    )
    found = {name: found[name] for name in outputs}  # JAX sorts the keys of dicts
    return decode(about.custom_metadata_map.get(KEY), found)


def _by_name(x: Any, names: list[str]) -> list[Any]:
    if isinstance(x, Mapping):
        if set(x) == set(names):
            return [x[name] for name in names]
        received = ", ".join(map(repr, x))
    else:
        values = list(x) if isinstance(x, list | tuple) else [x]
        if len(values) == len(names):
            return values
        received = f"{len(values)} arrays"
    raise DataError(
        "predict",
        f"the ONNX model takes {', '.join(map(repr, names))}",
        {"received": received},
        hint="Pass the arrays in this order, or a dict by these names.",
    )


def _fit(value: Any, spec: Any) -> np.ndarray:
    element = spec.type.removeprefix("tensor(").removesuffix(")")
    if element not in _DTYPES:
        raise DTypeError(
            "predict", f"input {spec.name!r} is a {spec.type}, which is no array"
        )
    array, dtype = np.asarray(value), np.dtype(_DTYPES[element])
    fits = array.ndim == len(spec.shape) and all(
        got == size or not isinstance(size, int)
        for size, got in zip(spec.shape[1:], array.shape[1:], strict=True)
    )
    if not fits:
        raise ShapeError(
            "predict",
            f"input {spec.name!r} must be {element}{spec.shape}, received "
            f"{describe(array)}",
            hint="The first axis counts the rows.",
        )
    if dtype.kind == "O":  # strings
        return array.astype(dtype)
    return as_dtype(array, dtype, f"input {spec.name!r}")
