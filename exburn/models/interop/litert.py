"""LiteRT (``.tflite``) files, run by its interpreter."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from exburn.core.symbolic_shapes import describe
from exburn.errors import (
    DataError,
    FileFormatError,
    ShapeError,
    require,
)
from exburn.export.litert.file import about
from exburn.export.structure import KEY, decode
from exburn.models.interop.rows import as_dtype, row_count
from exburn.runtime.files.ordinary import read_whole

_MAGIC = b"TFL3"  # from the fifth byte on


class StoredModel(NamedTuple):
    """A file's interpreter, and the structure of its outputs, if the file has it."""

    interpreter: Any
    structure: str | None


def is_interpreter(model: Any) -> bool:
    """Whether a value is a LiteRT interpreter, of this package or of TensorFlow."""
    return (
        isinstance(model, StoredModel)
        or hasattr(model, "get_signature_runner")
        and hasattr(model, "invoke")
    )


def load(path: Path) -> StoredModel:
    """An interpreter for a file."""
    reason = "a LiteRT model is run by ai-edge-litert"
    litert = require(
        "ai_edge_litert.interpreter",
        "predict",
        reason,
        extra="litert",
        package="ai-edge-litert",
    )
    data = read_whole(path, "predict")
    try:
        if data[4:8] != _MAGIC:
            raise ValueError("it does not begin as such a file does")
        return StoredModel(litert.Interpreter(model_content=data), about(data, KEY))
    except (ValueError, RuntimeError) as error:
        raise FileFormatError(
            "predict",
            f"{path.name} is no LiteRT model",
            {"cause": f"{type(error).__name__}: {error}"},
        ) from error


def inputs_of(model: Any) -> list[tuple[str, tuple[int, ...], np.dtype]]:
    """Name, shape and dtype of each input of a file; sizes of -1 are open."""
    interpreter = model.interpreter if isinstance(model, StoredModel) else model
    return [
        (name, tuple(map(int, d.get("shape_signature", d["shape"]))), d["dtype"])
        for name, d in _entries(interpreter)[0].inputs.items()
    ]


def predict_litert(interpreter: Any, x: Any, batch_size: int | None) -> Any:
    """Outputs of the model: an array, or a dict by name if there are several.

    Those of a file that ``model.export`` wrote come in the model's structure.

    A file may have signatures for several numbers of rows. The rows are cut into the
    largest of them that fit; the last batch is filled up with its last row. What a
    quantized file takes and gives as integers is given and returned as the numbers that
    they stand for.

    Args:
        x: A dict by the model's input names, a list in their order, or the one array.
    """
    structure = None
    if isinstance(interpreter, StoredModel):
        interpreter, structure = interpreter
    entries = _entries(interpreter)
    first = entries[0]
    feed = _by_name(x, first)
    rows = row_count(list(feed.values()))
    parts = []
    for entry, start, count in _schedule(entries, rows, batch_size):
        size = entry.rows or count
        chosen = np.minimum(np.arange(start, start + size), rows - 1)
        outputs = entry.run({name: value[chosen] for name, value in feed.items()})
        parts.append({name: value[:count] for name, value in outputs.items()})
    joined = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
    return decode(structure, joined)


@dataclasses.dataclass
class _Entry:
    """One way into a file: a signature, or the whole of a file that has none."""

    interpreter: Any
    runner: Any
    inputs: dict[str, Any]
    outputs: dict[str, Any]

    @property
    def rows(self) -> int | None:
        details = next(iter(self.inputs.values()))
        open_ = details["shape_signature"][:1] == [-1]
        return None if open_ or not len(details["shape"]) else int(details["shape"][0])

    def run(self, feed: dict[str, Any]) -> dict[str, np.ndarray]:
        feed = {name: _to_stored(v, self.inputs[name]) for name, v in feed.items()}
        if self.runner is not None:
            outputs = self.runner(**feed)
            return {n: _to_real(outputs[n], d) for n, d in self.outputs.items()}
        run = self.interpreter
        for name, value in feed.items():
            run.resize_tensor_input(self.inputs[name]["index"], value.shape)
        run.allocate_tensors()
        for name, value in feed.items():
            run.set_tensor(self.inputs[name]["index"], value)
        run.invoke()
        return {
            n: _to_real(run.get_tensor(d["index"]), d) for n, d in self.outputs.items()
        }


def _entries(interpreter: Any) -> list[_Entry]:
    """The signatures of a file, those for most rows first."""
    entries = []
    for name in interpreter.get_signature_list():
        runner = interpreter.get_signature_runner(name)
        inputs, outputs = runner.get_input_details(), runner.get_output_details()
        entries.append(_Entry(interpreter, runner, inputs, outputs))
    if not entries:
        interpreter.allocate_tensors()
        inputs = {d["name"]: d for d in interpreter.get_input_details()}
        outputs = {d["name"]: d for d in interpreter.get_output_details()}
        return [_Entry(interpreter, None, inputs, outputs)]
    same = [e for e in entries if _takes(e) == _takes(entries[0])]
    return sorted(same, key=lambda e: -(e.rows or 1 << 30))


def _takes(entry: _Entry) -> dict[str, tuple]:
    return {n: tuple(d["shape"][1:]) for n, d in entry.inputs.items()}


def _schedule(entries: list[_Entry], rows: int, batch_size: int | None) -> list[tuple]:
    """Which entry takes which rows: ``(entry, first row, rows of use)``."""
    limit = batch_size or rows
    fitting = [e for e in entries if (e.rows or 1) <= limit] or entries[-1:]
    plan, start = [], 0
    while start < rows:
        left = rows - start
        whole = [e for e in fitting if (e.rows or 1) <= left]
        entry = whole[0] if whole else fitting[-1]
        count = min(left, entry.rows or limit)
        plan.append((entry, start, count))
        start += count
    return plan


def _by_name(x: Any, entry: _Entry) -> dict[str, np.ndarray]:
    names = list(entry.inputs)
    if isinstance(x, Mapping):
        fits = set(x) == set(names)
        received, feed = ", ".join(map(repr, x)), dict(x)
    else:
        values = list(x) if isinstance(x, list | tuple) else [x]
        fits = len(values) == len(names)
        received, feed = f"{len(values)} arrays", {}
        if fits:
            feed = dict(zip(names, values, strict=True))
    if not fits:
        raise DataError(
            "predict",
            f"the LiteRT model takes {', '.join(map(repr, names))}",
            {"received": received},
            hint="Pass the arrays in this order, or a dict by these names.",
        )
    return {name: _fit(feed[name], name, entry.inputs[name]) for name in names}


def _fit(value: Any, name: str, details: Any) -> np.ndarray:
    array = np.asarray(value)
    shape, signature = details["shape"], details["shape_signature"]
    dims = [
        None if place == 0 or n == -1 else int(n)
        for place, n in enumerate(signature if len(signature) else shape)
    ]
    fits = array.ndim == len(dims) and all(
        n is None or n == got for n, got in zip(dims, array.shape, strict=True)
    )
    if not fits:
        raise ShapeError(
            "predict",
            f"input {name!r} must be {np.dtype(details['dtype'])}{dims}, received "
            f"{describe(array)}",
            hint="The first axis counts the rows.",
        )
    if _scale(details) is not None:
        return as_dtype(array, np.dtype(np.float32), f"input {name!r}")
    return as_dtype(array, np.dtype(details["dtype"]), f"input {name!r}")


def _scale(details: Any) -> tuple[Any, Any] | None:
    """Scale and zero point of a tensor of integers that stand for other numbers."""
    about = details.get("quantization_parameters") or {}
    scales, zeros = about.get("scales", ()), about.get("zero_points", ())
    return (scales[0], zeros[0]) if len(scales) == 1 else None


def _to_stored(value: np.ndarray, details: Any) -> np.ndarray:
    scaling = _scale(details)
    if scaling is None:
        return value
    kind = np.dtype(details["dtype"])
    scale, zero = scaling
    ends = np.iinfo(kind)
    return np.clip(np.round(value / scale) + zero, ends.min, ends.max).astype(kind)


def _to_real(value: np.ndarray, details: Any) -> np.ndarray:
    scaling = _scale(details)
    if scaling is None:
        return np.array(value)
    scale, zero = scaling
    return (value.astype(np.float32) - np.float32(zero)) * np.float32(scale)
