"""Predicts for the rows of a file, with a model in another.

  exburn predict iris.exburn flowers.csv -o species.csv
  exburn predict mood.onnx reviews.parquet -o moods.json
  exburn predict digits.keras photos/ -o digits.csv

DATA is .csv, .tsv, .parquet, .json, .npy, .npz, an image, a text (.txt, one a line), or
a folder of images or texts. Columns go to the inputs of their names, and x_0, x_1 … to
an input x of several numbers; a model of one input takes all columns, or those that
--columns names. OUT is .csv, .json, .npy or .npz; without it, CSV is printed. Exit code
1: something does not fit, or OUT is there and --force is not.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import io
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from exburn.command_line.data_files import Rows, numbers, read_rows
from exburn.command_line.modules import add_import, import_modules
from exburn.command_line.output import plain, show, whole
from exburn.errors import ArgumentError, DataError, ShapeError
from exburn.runtime.files.atomic import target_of, write_atomically

_OP = "predict"
_WRITTEN = (".csv", ".json", ".npy", ".npz")
_MODES = {1: "grayscale", 3: "rgb", 4: "rgba"}


@dataclasses.dataclass(frozen=True)
class Input:
    """The inputs that a model asks for.

    Attributes:
        shape: Of one row; ``None`` for sizes that are open.
        dtype: A NumPy dtype, or ``"string"``.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: Any

    @property
    def width(self) -> int | None:
        """The numbers of a row, if their number is fixed."""
        sizes = [size for size in self.shape if size is not None]
        return math.prod(sizes) if len(sizes) == len(self.shape) else None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument("file", type=Path, metavar="FILE", help="a model")
    parser.add_argument("data", type=Path, metavar="DATA", help="the rows")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="OUT", help="the file to write"
    )
    parser.add_argument(
        "--force", action="store_true", help="replace OUT if it is there"
    )
    parser.add_argument(
        "--columns",
        type=lambda text: [name.strip() for name in text.split(",")],
        metavar="NAMES",
        help="columns of the one input, in its order, between commas (all)",
    )
    parser.add_argument(
        "--batch-size", type=whole(1), metavar="N", help="rows of a batch"
    )
    add_import(parser)


def run(options: argparse.Namespace) -> None:
    """Predicts, and writes or prints."""
    from exburn.models.interop import predict
    from exburn.models.interop.dispatch import load

    import_modules(_OP, options.modules)
    target = None if options.output is None else _target(options.output, options.force)
    rows = read_rows(options.data)
    model = load(options.file)
    inputs, names = _interface(model)
    x = _arrange(rows, inputs, options.columns, options.data.name)
    outputs = _name_outputs(predict(model, x, batch_size=options.batch_size), names)
    count = len(next(iter(outputs.values())))
    facts: dict[str, Any] = {"rows": count}
    if target is None:
        facts |= {"outputs": outputs}
        facts |= {} if rows.sources is None else {"files": rows.sources}
        text = "" if options.json else _csv(outputs, rows.sources).rstrip("\n")
    else:
        _write(target, outputs, rows.sources)
        shapes = {name: list(array.shape) for name, array in outputs.items()}
        facts |= {"to": str(target), "outputs": shapes}
        sizes = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        text = f"{options.data} → {options.output}: {sizes}"
    show(options, facts, text)


def _target(path: Path, force: bool) -> Path:
    if path.suffix.lower() not in _WRITTEN:
        raise ArgumentError(
            _OP, f"OUT ends in one of {', '.join(_WRITTEN)}, received {path.name!r}"
        )
    if path.exists() and not force:
        raise ArgumentError(
            _OP, f"{str(path)!r} is there already", hint="Pass --force."
        )
    return target_of(path, _OP)


# ---------------------------------------------------------------------- the model
def _interface(model: Any) -> tuple[list[Input] | None, Sequence[str] | None]:
    """Inputs and names of outputs of a loaded model, as far as it tells them."""
    from exburn.models.interop import litert, onnx_models, stablehlo
    from exburn.models.preparing import part_names

    if onnx_models.is_session(model):
        inputs = [
            _input(spec.name, spec.shape, onnx_models.dtype_of(spec))
            for spec in model.get_inputs()
        ]
        return inputs, [spec.name for spec in model.get_outputs()]
    if stablehlo.is_exported(model):
        avals, names = model.exported.in_avals, model.input_names
        names = names or [f"x_{i}" for i in range(len(avals))]
        return [
            _input(n, a.shape, a.dtype) for n, a in zip(names, avals, strict=True)
        ], (None)
    if litert.is_interpreter(model):
        specs = litert.inputs_of(model)
        return [_input(name, shape, dtype) for name, shape, dtype in specs], None
    names, outputs = part_names(model) if hasattr(model, "graph") else (None, None)
    if names is None:
        return None, outputs
    specs = zip(names, model.graph.inputs, strict=True)
    return [_input(name, spec.shape, spec.dtype) for name, spec in specs], outputs


def _input(name: str, shape: Sequence[Any], dtype: Any) -> Input:
    texts = str(dtype) == "string" or np.dtype(dtype) == object
    sizes = [size if isinstance(size, int) and size > 0 else None for size in shape]
    return Input(name, tuple(sizes[1:]), "string" if texts else np.dtype(dtype))


# ---------------------------------------------------------------------- the inputs
def _arrange(
    rows: Rows, inputs: list[Input] | None, chosen: list[str] | None, file: str
) -> Any:
    """The arrays that ``predict`` takes, made of the content of a file."""
    only = inputs[0] if inputs is not None and len(inputs) == 1 else None
    if rows.columns is None:
        if inputs is not None and only is None:
            raise ArgumentError(
                _OP,
                f"{file} holds one array, the model takes {len(inputs)}",
                {"inputs": ", ".join(spec.name for spec in inputs)},
                hint="Columns or arrays by these names: .csv, .parquet, .json, .npz.",
            )
        return _single(rows, only)
    columns = rows.columns
    if chosen is not None:
        _require(chosen, columns, file)
        columns = {name: columns[name] for name in chosen}
    if inputs is None:
        return _join_columns(columns, Input("x", (None,), None))
    arrays = {spec.name: _by_name(spec, columns) for spec in inputs}
    missing = [name for name, array in arrays.items() if array is None]
    if missing and only is not None and only.name not in columns:
        return _join_columns(columns, only, file)
    if missing:
        _require(missing, columns, file)
    return arrays[only.name] if only is not None else arrays


def _require(names: Sequence[str], columns: Mapping[str, Any], file: str) -> None:
    if absent := [name for name in names if name not in columns]:
        raise DataError(
            _OP,
            f"{file} lacks {len(absent)} column{'s' * (len(absent) > 1)}: "
            + ", ".join(absent),
            {"it has": ", ".join(columns)},
        )


def _by_name(spec: Input, columns: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The array of an input: the column of its name, or ``name_0``, ``name_1`` …"""
    if spec.name in columns:
        array = _cells(spec, spec.name, columns[spec.name])
        return array[:, None] if array.ndim == 1 and spec.shape == (1,) else array
    parts = [f"{spec.name}_{place}" for place in range(spec.width or 0)]
    if not parts or not all(part in columns for part in parts):
        return None
    return _join_columns({part: columns[part] for part in parts}, spec)


def _join_columns(
    columns: Mapping[str, np.ndarray], spec: Input, file: str = ""
) -> Any:
    """The columns side by side, as the one input."""
    if spec.width not in (None, len(columns)):
        raise ShapeError(
            _OP,
            f"the input {spec.name!r} takes {spec.width} column"
            f"{'s' * (spec.width != 1)}, {file} has {len(columns)}",
            {"columns": ", ".join(columns)},
            hint="--columns a,b,c names them, in the input's order.",
        )
    if any(array.ndim != 1 for array in columns.values()):
        raise DataError(
            _OP,
            f"none of the arrays in {file} is called {spec.name!r}, as the input is",
            {"arrays": ", ".join(columns)},
        )
    cells = [_cells(spec, name, column) for name, column in columns.items()]
    array = np.stack(cells, axis=1)
    return array if None in spec.shape else array.reshape(-1, *spec.shape)


def _cells(spec: Input, name: str, column: np.ndarray) -> np.ndarray:
    if spec.dtype == "string":
        return column.astype(str).astype(object)
    return numbers(name, column, spec.dtype)


def _single(rows: Rows, only: Input | None) -> np.ndarray:
    """The one array of a file, of images or of texts."""
    if rows.images is not None:
        return _pictures(rows.images, only)
    if rows.texts is not None:
        texts = np.array(rows.texts, dtype=object)
        if only is not None and only.dtype != "string":
            raise DataError(
                _OP, f"the input {only.name!r} takes {only.dtype}, received texts"
            )
        return texts[:, None] if only is not None and only.shape == (1,) else texts
    assert rows.array is not None
    return rows.array


def _pictures(files: Sequence[Path], only: Input | None) -> np.ndarray:
    """Images as ``image_dataset_from_directory`` reads them, in the input's size."""
    from exburn.utils.images import img_to_array, load_img

    shape = () if only is None else only.shape
    height, width, channels = shape if len(shape) == 3 else (None, None, None)
    if only is None or channels not in _MODES or None in (height, width):
        raise ShapeError(
            _OP,
            "images go into an input of [height, width, 1, 3 or 4]",
            {"received": "an unknown one" if only is None else list(shape)},
        )
    images = [
        load_img(file, _MODES[channels], (height, width), "bilinear") for file in files
    ]
    return np.stack([img_to_array(image, "channels_last") for image in images])


# ---------------------------------------------------------------------- the outputs
def _name_outputs(outputs: Any, names: Sequence[str] | None) -> dict[str, np.ndarray]:
    """The arrays of a tree by name: a dict's keys, the model's names, or places."""
    import jax

    flat = jax.tree_util.tree_leaves_with_path(outputs)
    if not any(
        isinstance(key, jax.tree_util.DictKey) for path, _ in flat for key in path
    ):
        names = names if names is not None and len(names) == len(flat) else None
        names = names or (
            ["y"] if len(flat) == 1 else [f"y_{i}" for i in range(len(flat))]
        )
    else:
        names = ["_".join(_key(key) for key in path) for path, _ in flat]
    arrays = [np.asarray(leaf) for _, leaf in flat]
    return {n: _plain_dtype(array) for n, array in zip(names, arrays, strict=True)}


def _plain_dtype(array: np.ndarray) -> np.ndarray:
    """An array of a dtype that other programs have."""
    if array.dtype == object:
        return array.astype(str)
    return array.astype(np.float32) if array.dtype.kind == "V" else array  # bfloat16


def _key(key: Any) -> str:
    return str(getattr(key, "key", getattr(key, "idx", key)))


def _write(
    target: Path, outputs: Mapping[str, np.ndarray], sources: Sequence[str] | None
) -> None:
    suffix = target.suffix.lower()
    if suffix == ".npy" and len(outputs) != 1:
        raise ArgumentError(
            _OP,
            f".npy holds one array, the model has {len(outputs)} outputs",
            {"outputs": ", ".join(outputs)},
            hint=f"Write {target.with_suffix('.npz').name}.",
        )

    def write(file: BinaryIO) -> None:
        if suffix == ".npy":
            np.save(file, next(iter(outputs.values())), allow_pickle=False)
        elif suffix == ".npz":
            with zipfile.ZipFile(file, "w") as archive:
                for name, array in outputs.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as part:
                        np.lib.format.write_array(part, array, allow_pickle=False)
        elif suffix == ".json":
            files = {} if sources is None else {"files": sources}
            file.write(json.dumps(plain({**outputs, **files})).encode() + b"\n")
        else:
            file.write(_csv(outputs, sources).encode())

    write_atomically(target, write, op=_OP)


def _csv(outputs: Mapping[str, np.ndarray], sources: Sequence[str] | None) -> str:
    names, columns = [], []
    if sources is not None:
        names, columns = ["file"], [list(sources)]
    for name, array in outputs.items():
        if array.ndim > 2:
            raise ShapeError(
                _OP,
                f"the output {name!r} has no columns",
                {"shape": list(array.shape)},
                hint="Write .npy, .npz or .json: -o OUT.",
            )
        if array.ndim < 2 or array.shape[1] == 1:
            names.append(name)
        else:
            names += [f"{name}_{place}" for place in range(array.shape[1])]
        columns += list(array.reshape(len(array), -1).T)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue()
