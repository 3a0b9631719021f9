"""A model's weights alone: written as safetensors, read from several formats."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from exburn.core.printing import Plain
from exburn.errors import ArgumentError, FileFormatError, ShapeError, printable
from exburn.errors.boundary import api_boundary, guard_methods
from exburn.module.traversal import iter_weights
from exburn.module.variable import assign
from exburn.runtime.files.atomic import path_of, target_of
from exburn.runtime.files.ordinary import HDF5, ZIP, Source
from exburn.saving.checkpoint import saved_at
from exburn.saving.checkpoint.arrays import weights_of
from exburn.saving.foreign_safetensors import write_foreign
from exburn.saving.keras_archive import is_keras_archive
from exburn.saving.own_storage import give_back, own_variables
from exburn.saving.shards import byte_count, write_tensors
from exburn.saving.torch_file import is_torch_zip
from exburn.saving.weight_sources import (
    ArraySource,
    NpzSource,
    RenamedSource,
    WeightSource,
    open_source,
)
from exburn.weights import Rules

FORMAT = "exburn-weights-1"
_OP = "load_weights"


@api_boundary
def save_weights(
    model: Any,
    filepath: Any,
    overwrite: bool = True,
    *,
    max_shard_size: Any = None,
    rules: Rules | None = None,
) -> Path:
    """Writes every weight under its path; the old file survives any failure.

    Args:
        model: A built model.
        filepath: Target; ``.safetensors`` is appended if it has no suffix. Keras'
            ``.weights.h5`` is accepted, and holds safetensors too.
        overwrite: Whether an existing file may be replaced.
        max_shard_size: Size, such as ``"5GB"``, from which on the tensors go into
            several files beside an index.
        rules: Under which names, and in which form, another library has the weights
            (``exburn.weights.rules``); the file is as that library's is.

    Raises:
        ArgumentError: The file exists and ``overwrite`` is false; no such folder; or
            there is no rule for a weight.
        SaveError: The disk is full, or writing is not permitted.

    Example:
        >>> import tempfile
        >>> from exburn import Input, Sequential, layers
        >>> model = Sequential([Input((2,)), layers.Dense(3)])
        >>> path = tempfile.mkdtemp() + "/weights.safetensors"
        >>> save_weights(model, path).name
        'weights.safetensors'
    """
    path = path_of(filepath, ".safetensors", "save_weights")
    foreign = path.suffix in (".h5", ".hdf5", ".keras", ".npz", ".pth", ".pt")
    if foreign and not path.name.endswith(".weights.h5"):
        raise ArgumentError(
            "save_weights",
            f"ExBurn writes safetensors files, not {path.suffix!r}",
            hint=f"Use {path.name.split('.')[0]}.safetensors",
        )
    path = target_of(path, "save_weights", overwrite=overwrite)
    weights = {n: weight for n, weight, _ in iter_weights(model, carried=False)}
    limit = byte_count(max_shard_size, "save_weights")
    if rules is not None:
        check_rules("save_weights", rules)
        return write_foreign(
            path, weights, rules, max_shard_size=limit, op="save_weights"
        )
    arrays = {name: weight.get_value() for name, weight in weights.items()}
    arrays |= own_variables(model, "save_weights")
    return write_tensors(
        path, arrays, {}, format=FORMAT, max_shard_size=limit, op="save_weights"
    )


def check_rules(op: str, rules: Any) -> Rules | None:
    """Rules as an argument.

    Raises:
        ArgumentError: They are something else.
    """
    if rules is not None and not isinstance(rules, Rules):
        raise ArgumentError(
            op,
            f"rules must be what exburn.weights.rules makes, received {rules!r}",
            hint="exburn.weights.rules([(pattern, target, transform), …])",
        )
    return rules


@api_boundary
def load_weights(
    model: Any,
    filepath: Any,
    *,
    skip_mismatch: bool = False,
    by_name: bool = False,
    rules: Rules | None = None,
) -> LoadReport:
    """Reads weights by path. Nothing is changed unless everything fits.

    Args:
        model: A built model.
        filepath: A file of ``save_weights`` or ``save_model``, any safetensors file or
            NumPy's ``.npz`` with the same names, a file of ``torch.save``, or Keras'
            ``.weights.h5``, ``.keras`` or legacy ``.h5``: its content tells what it is.
            Or a folder of checkpoints, or one of them.
        skip_mismatch: Leaves out weights that are missing, unexpected or of another
            shape.
        by_name: Of a legacy ``.h5``, takes the layers whose names are in the model, and
            leaves the others as they are.
        rules: Which of the file's names is which weight, and in which form
            (``exburn.weights.rules``).

    Raises:
        FileFormatError: The file is damaged, or weights are missing or unexpected.
        ShapeError: A weight has another shape.
        ArgumentError: There is no such file, or ``by_name`` is for another kind.
        CheckpointError: There is no intact checkpoint in the folder.
        MissingDependencyError: A file of Keras' needs h5py.

    Example:
        >>> import tempfile
        >>> from exburn import Input, Sequential, layers
        >>> model = Sequential([Input((2,)), layers.Dense(3)])
        >>> path = tempfile.mkdtemp() + "/weights.safetensors"
        >>> _ = save_weights(model, path)
        >>> print(load_weights(model, path).missing)
        []
    """
    path = path_of(filepath, ".safetensors", _OP, exists=True)
    check_rules(_OP, rules)
    own = {name: weight for name, weight, _ in iter_weights(model, carried=False)}
    shapes = {name: tuple(weight.shape) for name, weight in own.items()}
    carried_names = {name for name, _, _ in iter_weights(model)} - set(own)
    with _open(path, model, shapes, by_name, skip_mismatch, rules) as source:
        shapes_in_file = {
            n: s for n, s in source.shapes.items() if n not in carried_names
        }
        rest = {n: s for n, s in shapes.items() if n not in source.taken}
        report = _report(path, rest, shapes_in_file)
        if not skip_mismatch:
            _require_complete(report, partial=by_name)
        elif not (report.loaded or source.taken):
            raise FileFormatError(
                _OP,
                "no weight of the model is in the file",
                {"file": path, "first in the file": ", ".join(report.unexpected[:3])},
                hint="The names differ: compare them with model.weights.",
            )
        own_arrays, taken = source.read_own(), source.taken
        fill(path, own, source, report.loaded)
    give_back(model, own_arrays, _OP)
    loaded = [name for name in own if name in taken or name in report.loaded]
    return dataclasses.replace(report, loaded=loaded)


def fill(
    path: Path, weights: Mapping[str, Any], source: WeightSource, names: list[str]
) -> None:
    """Gives weights their values, once none of these can be found damaged any more.

    Raises:
        FileFormatError: The file is damaged, or holds complex numbers for real weights.
    """

    def check(name: str, dtype: Any) -> None:
        own_dtype = np.dtype(weights[name].get_raw_value().dtype)
        if np.dtype(dtype).kind == "c" and own_dtype.kind != "c":
            raise FileFormatError(
                _OP,
                f"{name} holds complex numbers in the file, and real ones in the model",
                {"file": path},
            )

    if source.sequential:
        for name in names:
            check(name, source.dtype(name))
        source.verify(names)
        # One after another, the largest first: while it is read, and there are two of
        # it, the others take no memory yet.
        by_size = sorted(names, key=lambda name: -math.prod(weights[name].shape))
        for name, array in source.each(by_size):
            array = array.astype(weights[name].get_raw_value().dtype, copy=False)
            assign(weights[name], jax.device_put(array), fresh=True)
        return
    arrays = source.read(names)
    for name in names:
        check(name, arrays[name].dtype)
    for name in names:
        assign(weights[name], arrays[name])


@contextlib.contextmanager
def open_whole(model: Any, filepath: Any) -> Iterator[WeightSource]:
    """A file, or a checkpoint, that has all weights of a model and no others.

    Args:
        model: A built model, which stays as it is.
        filepath: As of ``load_weights``.

    Raises:
        FileFormatError, ShapeError, ArgumentError, CheckpointError: As of
            ``load_weights``; or layers read what they save by methods of their own.
    """
    path = path_of(filepath, ".safetensors", _OP, exists=True)
    own = {name: tuple(w.shape) for name, w, _ in iter_weights(model, carried=False)}
    carried = {name for name, _, _ in iter_weights(model)} - set(own)
    with _open(path, model, own, False, False, None) as source:
        shapes = {n: s for n, s in source.shapes.items() if n not in carried}
        _require_complete(_report(path, own, shapes), partial=False)
        yield source


@contextlib.contextmanager
def _open(
    path: Path,
    model: Any,
    shapes: Mapping[str, tuple],
    by_name: bool,
    skip_mismatch: bool,
    rules: Rules | None,
) -> Iterator[WeightSource]:
    # Not path.is_dir(), which raises what the disk says.
    if os.path.isdir(path) and (saved := saved_at(path)) is not None:
        _refuse_by_name(path, by_name)
        yield ArraySource(weights_of(saved.arrays))
        return
    if rules is not None:
        _refuse_by_name(path, by_name)
        with open_source(path, _OP) as source:
            yield RenamedSource(source, rules, shapes, _OP)
        return
    with Source(path, op=_OP) as file:
        start = file.read(0, 8)
    if start == HDF5 or (start.startswith(ZIP) and is_keras_archive(path, _OP)):
        from exburn.saving.keras_weights import open_weights

        options = {"by_name": by_name, "skip_mismatch": skip_mismatch}
        with open_weights(path, model, **options) as source:
            yield source
        return
    _refuse_by_name(path, by_name)
    if start.startswith(ZIP) and not is_torch_zip(path, _OP):
        yield NpzSource(path, _OP, shapes)
        return
    with open_source(path, _OP) as source:
        yield source


def _refuse_by_name(path: Path, by_name: bool) -> None:
    if by_name:
        raise ArgumentError(
            _OP,
            "by_name=True is for Keras' legacy .h5 files; others go by path anyway",
            {"file": path},
        )


def _report(path: Path, own: Mapping[str, tuple], stored_shapes: Mapping[str, tuple]):
    both = [name for name in own if name in stored_shapes]
    return LoadReport(
        source=str(path),
        loaded=[name for name in both if stored_shapes[name] == own[name]],
        missing=[name for name in own if name not in stored_shapes],
        unexpected=[name for name in stored_shapes if name not in own],
        mismatched={
            n: (own[n], stored_shapes[n]) for n in both if stored_shapes[n] != own[n]
        },
    )


def _require_complete(report: LoadReport, *, partial: bool) -> None:
    if (report.missing and not partial) or report.unexpected:
        raise FileFormatError(
            _OP,
            "the file belongs to another model",
            {
                "missing in the file": ", ".join(report.missing) or "none",
                "not in the model": ", ".join(report.unexpected) or "none",
            },
            hint="skip_mismatch=True loads what fits.",
        )
    for name, (mine, theirs) in report.mismatched.items():
        raise ShapeError(
            _OP,
            f"{name} has shape {mine}, the file has {theirs}",
            hint="skip_mismatch=True loads what fits.",
        )


_SHOWN = 20  # rows of a kind in the table


@guard_methods
@dataclasses.dataclass(frozen=True)
class LoadReport:
    """What ``load_weights`` did. It prints itself as a table.

    Attributes:
        source: The file.
        loaded: Paths of the weights that were given a value.
        missing: Paths of weights of the model that the file does not have.
        unexpected: Names in the file that the model does not have.
        mismatched: ``{path: (shape in the model, shape in the file)}``.

    Example:
        >>> report = LoadReport("w.npz", ["dense/kernel"], ["dense/bias"], [], {})
        >>> report.complete, len(report.loaded)
        (False, 1)
        >>> print(str(report).splitlines()[0])
        w.npz: 1 loaded, 1 missing, 0 unexpected, 0 of another shape
    """

    source: str
    loaded: list[str]
    missing: list[str]
    unexpected: list[str]
    mismatched: dict[str, tuple[tuple, tuple]]

    @property
    def complete(self) -> bool:
        """Whether the model and the file had the same weights, in the same shapes."""
        return not (self.missing or self.unexpected or self.mismatched)

    def _title(self) -> str:
        counts = {
            "loaded": self.loaded,
            "missing": self.missing,
            "unexpected": self.unexpected,
            "of another shape": self.mismatched,
        }
        parts = [f"{len(names)} {what}" for what, names in counts.items()]
        return f"{self.source}: {', '.join(parts)}"

    def _rows(self) -> list[tuple[str, str, str]]:
        shapes = [
            (path, "other shape", f"model {model}, file {file}")
            for path, (model, file) in self.mismatched.items()
        ]
        kinds = [
            shapes,
            [(path, "missing", "not in the file") for path in self.missing],
            [(name, "unexpected", "not in the model") for name in self.unexpected],
            [(path, "loaded", "") for path in self.loaded],
        ]
        rows = []
        for kind in kinds:
            rows += kind[:_SHOWN]
            if len(kind) > _SHOWN:
                rows.append((f"… {len(kind) - _SHOWN} more", kind[0][1], ""))
        return rows

    def __rich__(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(title=self._title(), title_justify="left")
        for heading in ("weight", "outcome", "shapes"):
            table.add_column(heading)
        for row in self._rows():
            table.add_row(*map(Text, row))  # a name is no markup
        return Plain(table)

    def __str__(self) -> str:
        width = max((len(name) for name, _, _ in self._rows()), default=0)
        lines = [
            f"  {name:<{width}}  {outcome:<11}  {shapes}".rstrip()
            for name, outcome, shapes in self._rows()
        ]
        return printable("\n".join([self._title(), *lines]))
