"""Arrays in files of several formats by name: what they are, then what is in them.

Nothing is read before its shape is known to be wanted.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exburn.errors import ArgumentError, ModelFormatError, ShapeError
from exburn.errors.boundary import api_boundary, guard_methods
from exburn.runtime.files.atomic import path_of
from exburn.runtime.files.bounds import ArrayBudget
from exburn.runtime.files.npz import NpzFile
from exburn.runtime.files.ordinary import HDF5, ZIP, Source
from exburn.saving.header import damage_error
from exburn.saving.keras_archive import KerasArchive, is_keras_archive
from exburn.saving.own_storage import is_own
from exburn.saving.shards import TensorFile, listed_files
from exburn.saving.torch_file import LEGACY, TorchFile, is_torch_zip
from exburn.weights import Move, Rules

_MOST_ENTRIES = 100_000  # of an HDF5 file that is for no known model
# What pickles begin with; some safetensors, too, by the size of a header: "{" follows.
_PICKLES = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


class WeightSource:
    """Weights in a file, whatever its format; a subclass has ``read`` or ``each``.

    Attributes:
        shapes: Shape of each, by its path in the model, else its name in the file.
        taken: Paths of weights that a method of their layer's reads.
        sequential: Whether ``verify`` can find damage before the first array is used,
            so that ``each`` need not have all of them in memory.
        dtypes_known: Whether ``dtype`` tells them.
        metadata: Strings in the file; ``None`` if its format has none.
    """

    shapes: Mapping[str, tuple[int, ...]]
    taken: frozenset[str] = frozenset()
    sequential = False
    dtypes_known = False
    metadata: Mapping[str, str] | None = None

    def read(self, names: Iterable[str]) -> Mapping[str, np.ndarray]:
        """The arrays of these names; they have been found to fit."""
        return dict(self.each(names))

    def each(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        """The same, one after another; nobody else has the memory of any of them."""
        yield from self.read(names).items()

    def verify(self, names: Iterable[str]) -> None:
        """Compares the arrays with what the file says of them, and keeps none.

        Raises:
            ModelFormatError: Something is damaged.
        """

    def dtype(self, name: str) -> np.dtype | None:
        """What an array holds, if that is known before it is read."""
        return None

    def read_own(self) -> Mapping[str, np.ndarray]:
        """What layers saved by methods of their own."""
        return {}


class SafetensorsSource(WeightSource):
    """A safetensors file; what is no weight in a model file is left out."""

    dtypes_known = True

    def __init__(self, file: TensorFile):
        self._file = file
        # An index has none of its own.
        self.metadata = None if file.path.suffix == ".json" else file.metadata
        self.sequential = not file.has_digests  # then there is nothing to compare
        self.shapes = {
            name: entry.shape
            for name, entry in file.entries.items()
            if not name.startswith("/")
        }

    def read(self, names: Iterable[str]) -> Mapping[str, np.ndarray]:
        return self._file.read(names)

    def each(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        for name in names:
            yield name, self._file.read_one(name, aligned=True)

    def dtype(self, name: str) -> np.dtype | None:
        return self._file.entries[name].dtype

    def read_own(self) -> Mapping[str, np.ndarray]:
        """What layers saved by methods of their own."""
        return self._file.read([name for name in self._file.entries if is_own(name)])


class TorchSource(WeightSource):
    """A file of ``torch.save``."""

    sequential = dtypes_known = True

    def __init__(self, file: TorchFile):
        self._file = file
        self.shapes = file.shapes

    def each(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        for name in self._file.in_order(names):
            yield name, np.array(self._file.read(name))  # others may share the storage

    def verify(self, names: Iterable[str]) -> None:
        self._file.verify(names)

    def dtype(self, name: str) -> np.dtype | None:
        return self._file.tensors[name].dtype


class ShardedSource(WeightSource):
    """The tensors of several files, each of which has some."""

    sequential = dtypes_known = True

    def __init__(self, parts: Iterable[WeightSource], op: str):
        self._parts: dict[str, WeightSource] = {}
        self.shapes = shapes = {}
        for part in parts:
            for name, shape in part.shapes.items():
                if name in shapes:
                    raise ModelFormatError(op, f"two files have a tensor {name!r}")
                self._parts[name], shapes[name] = part, shape

    def _by_part(
        self, names: Iterable[str]
    ) -> Iterator[tuple[WeightSource, list[str]]]:
        groups: dict[int, tuple[WeightSource, list[str]]] = {}
        for name in names:
            part = self._parts[name]
            groups.setdefault(id(part), (part, []))[1].append(name)
        yield from groups.values()

    def each(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        for part, some in self._by_part(names):
            yield from part.each(some)

    def verify(self, names: Iterable[str]) -> None:
        for part, some in self._by_part(names):
            part.verify(some)

    def dtype(self, name: str) -> np.dtype | None:
        return self._parts[name].dtype(name)


class HDF5Source(WeightSource):
    """The arrays of an HDF5 file by their paths in it."""

    def __init__(self, file: Any):
        self._file = file
        self.shapes = file.shapes

    def read(self, names: Iterable[str]) -> Mapping[str, np.ndarray]:
        return {name: self._file.read(name) for name in names}


class ArraySource(WeightSource):
    """Arrays that are in memory already."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self._arrays = arrays
        self.shapes = {name: array.shape for name, array in arrays.items()}

    def read(self, names: Iterable[str]) -> Mapping[str, np.ndarray]:
        return {name: self._arrays[name] for name in names}


class NpzSource(WeightSource):
    """NumPy's ``.npz``: names are paths, or ``arr_0 …`` in the order of the weights.

    Args:
        wanted: The weights, for those that come in their order.
    """

    def __init__(self, path: Path, op: str, weights: Iterable[str] = ()):
        self._file = file = NpzFile(path, op, ModelFormatError)
        weights, names = list(weights), list(file.shapes)
        by_order = names == [f"arr_{i}" for i in range(len(weights))]
        targets = weights if by_order else names
        self._names = dict(zip(targets, names, strict=True))
        self.shapes = {
            target: file.shapes[name] for target, name in self._names.items()
        }

    def read(self, names: Iterable[str]) -> Mapping[str, np.ndarray]:
        return {name: self._file.read(self._names[name]) for name in names}


class RenamedSource(WeightSource):
    """The arrays of another one, as rules make weights of them.

    Args:
        stored: The arrays by their names in a file.
        rules: What becomes of them.
        wanted: Shapes of the model's weights, by path.

    Attributes:
        shapes: Those of what becomes a weight, by its path; of what no rule is for, and
            of what cannot be changed as its rule says, the shape in the file.
        ignored: Names that a rule leaves out.
        moves: What becomes of what.
    """

    def __init__(
        self, source: WeightSource, rules: Rules, targets: Mapping[str, tuple], op: str
    ):
        self._stored = source
        self.sequential, self._own_shapes = source.sequential, targets
        plan = rules.load_plan(source.shapes)
        self.ignored, self.moves = plan.ignored, plan.moves
        self._moves: dict[str, Move] = {}
        shapes = {name: source.shapes[name] for name in plan.unknown}
        for move in plan.moves:
            if twice := [t for t in move.targets if t in self._moves]:
                raise ArgumentError(
                    op,
                    f"rules make {twice[0]!r} of several tensors",
                    {"first": self._moves[twice[0]].sources, "then": move.sources},
                )
            for target, shape in zip(move.targets, self._shapes(move), strict=True):
                self._moves[target], shapes[target] = move, shape
        self.shapes = shapes

    def _shapes(self, move: Move) -> tuple[tuple[int, ...], ...]:
        source_shapes = tuple(self._stored.shapes[name] for name in move.sources)
        try:
            shapes = move.transform.shapes(source_shapes, self._targets(move))
        except ShapeError:
            shapes = source_shapes[:1] * len(move.targets)
        if len(shapes) != len(move.targets):
            raise ArgumentError(
                "rules",
                f"{move.transform} makes {len(shapes)} arrays of {move.sources}, "
                f"which are to be {move.targets}",
                hint="split makes several of one; concat, stack, add one of several.",
            )
        return shapes

    def _targets(self, move: Move) -> tuple[tuple[int, ...], ...]:
        return tuple(self._own_shapes.get(target, ()) for target in move.targets)

    def each(self, names: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
        names = set(names)
        moves = {id(self._moves[name]): self._moves[name] for name in names}
        single = {m.sources[0]: m for m in moves.values() if len(m.sources) == 1}
        for source, array in self._stored.each(single):
            yield from self._transform(single[source], (array,), names)
        for move in moves.values():
            if len(move.sources) > 1:
                loaded = self._stored.read(move.sources)
                arrays = tuple(loaded[source] for source in move.sources)
                yield from self._transform(move, arrays, names)

    def _transform(
        self, move: Move, arrays: tuple[np.ndarray, ...], names: set[str]
    ) -> Iterator[tuple[str, np.ndarray]]:
        results = move.transform.load(arrays, self._targets(move))
        pairs = zip(move.targets, results, strict=True)
        yield from ((target, array) for target, array in pairs if target in names)

    def verify(self, names: Iterable[str]) -> None:
        self._stored.verify([s for name in names for s in self._moves[name].sources])

    def dtype(self, name: str) -> np.dtype | None:
        return self._stored.dtype(self._moves[name].sources[0])


@contextlib.contextmanager
def open_source(path: Path, op: str) -> Iterator[WeightSource]:
    """The arrays of a file of any format, by their names in it.

    Raises:
        FileFormatError: The file is damaged, or holds what is refused.
        MissingFileError: There is no such file.
        MissingDependencyError: A file of Keras' needs h5py.
    """
    with contextlib.ExitStack() as stack:
        with Source(path, op=op) as file:
            start = file.read(0, len(LEGACY))
        if start == LEGACY:
            yield TorchSource(stack.enter_context(TorchFile(path, op=op)))
        elif start.startswith(HDF5):
            from exburn.saving.hdf5 import HDF5File

            file = HDF5File(path, op, _MOST_ENTRIES)
            yield HDF5Source(stack.enter_context(file))
        elif start.startswith(ZIP) and is_keras_archive(path, op):
            archive = stack.enter_context(KerasArchive(path, op))
            yield HDF5Source(stack.enter_context(archive.weights(_MOST_ENTRIES)))
        elif start.startswith(ZIP) and is_torch_zip(path, op):
            yield TorchSource(stack.enter_context(TorchFile(path, op=op)))
        elif start.startswith(ZIP):
            yield NpzSource(path, op)
        elif start.startswith(_PICKLES) and start[8:9] != b"{":
            raise damage_error(
                op, path, "this is a pickle, which may run anything: it is not read"
            )
        elif start.startswith(b"GGUF"):
            from exburn.saving.gguf import GGUFFile, GGUFSource

            yield GGUFSource(stack.enter_context(GGUFFile(path, op)))
        elif path.name.endswith(".bin.index.json"):
            files = [
                stack.enter_context(TorchFile(path.with_name(name), op=op))
                for name in listed_files(path, op, ".bin")
            ]
            lengths, sizes = zip(*(file.lengths for file in files), strict=True)
            refuse = functools.partial(damage_error, op, path)
            budget = ArrayBudget(sum(sizes), refuse)
            budget.add("all parts", sum(lengths), sum(sizes))
            yield ShardedSource(map(TorchSource, files), op)
        else:
            tensors = stack.enter_context(TensorFile(path, op=op))
            tensors.clean()
            yield SafetensorsSource(tensors)


_OP = "read_weights"


@guard_methods
class WeightFile(Mapping[str, np.ndarray]):
    """The arrays of a file by their names there; each is read when it is asked for.

    It is closed at the end of a ``with`` block, or with the last reference to it.

    Args:
        path: As of ``read_weights``.

    Attributes:
        shapes: Shape of each, of which nothing has been read.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> path = tempfile.mkdtemp() + "/weights.npz"
        >>> np.savez(path, kernel=np.ones((2, 3)))
        >>> with WeightFile(path) as file:
        ...     print(file.shapes, file["kernel"].sum())
        {'kernel': (2, 3)} 6.0
    """

    def __init__(self, path: Any):
        self.path = path_of(path, ".safetensors", _OP, exists=True)
        self._stack = contextlib.ExitStack()
        self._stored = self._stack.enter_context(open_source(self.path, _OP))
        self.shapes = dict(self._stored.shapes)

    def __getitem__(self, name: str) -> np.ndarray:
        return np.array(self._stored.read([name])[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def close(self) -> None:
        """Closes the file."""
        self._stack.close()

    def __enter__(self) -> WeightFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"WeightFile({str(self.path)!r}, {len(self)} arrays)"


@api_boundary
def read_weights(path: Any) -> WeightFile:
    """The arrays of a file by their names there, as a mapping that reads lazily.

    Nothing in a file is run: descriptions in PyTorch's are read by an interpreter that
    knows tensors alone.

    Args:
        path: A safetensors file or its index, a file of ``torch.save`` (``.pth``,
            ``.pt``, ``.bin``), NumPy's ``.npz``, Keras' ``.weights.h5``, ``.keras`` and
            ``.h5``, or llama.cpp's ``.gguf``: its content tells what it is.

    Raises:
        FileFormatError: The file is damaged, or holds more than arrays.
        MissingFileError: There is no such file.
        MissingDependencyError: A file of Keras' needs h5py.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "w.npz")
        >>> np.savez(path, **{"fc.weight": np.ones((2, 3))})
        >>> with read_weights(path) as weights:
        ...     weights.shapes, weights["fc.weight"].sum().item()
        ({'fc.weight': (2, 3)}, 6.0)
    """
    return WeightFile(path)
