"""Looking into weight files of Keras, and changing them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exburn.core.printing import print_text
from exburn.errors import ArgumentError, require
from exburn.errors.boundary import guard_methods
from exburn.module.layer import Layer
from exburn.runtime.files.atomic import path_of, write_atomically
from exburn.saving.hdf5 import HDF5File
from exburn.saving.header import damage_error, parse_json
from exburn.saving.keras_archive import KerasArchive
from exburn.saving.keras_layout import own_weights, walk

_OP = "KerasFileEditor"
_ENTRIES = 200_000  # groups and arrays of a file
Tree = dict[str, Any]  # objects by name, which hold objects and arrays


@guard_methods
class KerasFileEditor:
    """The weights of a ``.weights.h5`` or ``.keras`` file of Keras, to be changed.

    Objects are named by their paths in the file, ``"layers/dense_2"``, or by the last
    part, if no other object ends with it. The file itself stays as it is: ``save``
    writes another.

    Args:
        filepath: The file.

    Attributes:
        weights_dict: Arrays by name, in dicts by name of the objects around them.
        object_metadata: What the file says of each object beside its weights.
        config, metadata: Of a ``.keras`` file: the architecture, and who wrote it.

    Raises:
        ArgumentError: The file has another suffix.
        ModelFormatError: It is damaged, or refers to other files.
        MissingDependencyError: h5py is not installed.

    Example:
        >>> import h5py, tempfile
        >>> path = Path(tempfile.mkdtemp(), "small.weights.h5")
        >>> with h5py.File(path, "w") as file:
        ...     file["layers/dense/vars/0"] = np.ones((2, 3), "float32")
        >>> editor = KerasFileEditor(path)  # doctest: +ELLIPSIS
        Keras model file '...small.weights.h5'
        >>> editor.rename_object("dense", "head")
        >>> editor.add_weights("layers/head", {"1": np.zeros(3)})
        >>> editor.summary()
        Weights structure
          > layers
            └─ head
              ├─ 0: shape=(2, 3), dtype=float32
              └─ 1: shape=(3,), dtype=float64

    Source: ``keras.saving.KerasFileEditor``.
    """

    def __init__(self, filepath: Any):
        self.filepath = filepath
        self.config: Any = None
        self.metadata: Any = None
        path = path_of(filepath, ".weights.h5", _OP, exists=True)
        self._path = path
        self._h5py = require("h5py", _OP, "files of Keras need h5py", extra="keras")
        self.object_metadata: dict[str, dict[str, Any]] = {}
        if path.name.endswith(".keras"):
            if not zipfile.is_zipfile(path):
                raise damage_error(_OP, path, "it is no archive of Keras")
            with KerasArchive(path, _OP) as archive:
                self.config = self._parse(archive.config())
                self.metadata = self._parse(archive.metadata() or b"{}")
                with archive.weights(_ENTRIES) as file:
                    self.weights_dict = self._read(file)
        elif path.name.endswith(".weights.h5"):
            with HDF5File(path, _OP, _ENTRIES) as file:
                self.weights_dict = self._read(file)
        else:
            raise ArgumentError(
                _OP,
                f"the name must end in .weights.h5 or .keras, received {path.name!r}",
                hint="Files of ExBurn's own are safetensors files: "
                "safetensors.numpy.load_file(path).",
            )
        print_text(f"Keras model file {str(filepath)!r}")
        if self.metadata:
            version, date = (
                self.metadata.get(key) for key in ("keras_version", "date_saved")
            )
            print_text(f"Saved with Keras {version} - date: {date}")

    def _parse(self, text: bytes) -> dict[str, Any]:
        value = parse_json(text, _OP, self._path, "the description in the archive")
        if not isinstance(value, dict):
            raise damage_error(_OP, self._path, "a description is no JSON object")
        return value

    def _read(self, file: HDF5File) -> Tree:
        """The objects and arrays of a file; objects without arrays are left out."""
        for group in ("", *sorted(file.groups)):
            if about := file.attributes(group):
                path = f"/{group}" if group else ""
                self.object_metadata[path.removesuffix("/vars")] = about
        tree: Tree = {}
        for name in file.shapes:
            *objects, key = [part for part in name.split("/") if part != "vars"]
            inner = tree
            for part in objects:
                inner = inner.setdefault(part, {})
                if not isinstance(inner, dict):
                    break
            if not isinstance(inner, dict) or key in inner:
                raise file.damage_error(f"{name} is a second entry of its name")
            inner[key] = file.read(name)
        return tree

    # ------------------------------------------------------------------ looking
    def summary(self) -> None:
        """Prints the objects and the shapes of their arrays."""
        print_text("Weights structure")
        for line in _lines(self.weights_dict, "  ", first=True):
            print_text(line)

    def compare(self, reference_model: Any) -> dict[str, Any]:
        """Compares the weights with those that a model needs, and prints what differs.

        Args:
            reference_model: A built model.

        Returns:
            ``"status"``: ``"success"`` or ``"error"``; ``"error_count"``: how many
            weights and objects are missing, too many, or of another shape;
            ``"match_count"``: how many weights fit.

        Raises:
            NotBuiltError: The model has no weights yet.
        """
        print_text("Running comparison")
        count = {"match_count": 0, "error_count": 0}
        spec = _spec(reference_model)
        _compare(self.weights_dict, spec, "", count)
        failed = count["error_count"]
        print_text("─" * 21)
        if failed:
            plural = "" if failed == 1 else "s"
            print_text(f"Found {failed} error{plural}: the file does not fit the model")
        else:
            matches = count["match_count"]
            plural = "" if matches == 1 else "s"
            print_text("Comparison successful: the file fits the model")
            print_text(f"    Found {matches} matching weight{plural}")
        return {"status": "error" if failed else "success", **count}

    # ------------------------------------------------------------------ changing
    def rename_object(self, object_name: str, new_name: str) -> None:
        """Gives an object another name in the object around it.

        Raises:
            ArgumentError: There is no such object, or more than one; or the new name is
                a path, or is taken.
        """
        if "/" in new_name:
            raise ArgumentError(
                _OP, f"a new name is no path, received {new_name!r}", hint="Its end."
            )
        around, name = self._find(object_name)
        if new_name in around:
            raise ArgumentError(
                _OP, f"there is an object {new_name!r} beside {object_name!r}"
            )
        items = [(new_name if k == name else k, v) for k, v in around.items()]
        around.clear()
        around.update(items)

    def delete_object(self, object_name: str) -> None:
        """Leaves an object out, with all that is in it.

        Raises:
            ArgumentError: There is no such object, or more than one.
        """
        around, name = self._find(object_name)
        del around[name]

    def add_object(self, object_path: str, weights: Mapping[str, Any]) -> None:
        """Adds an object with its arrays.

        Args:
            object_path: Its whole path; the object around it is there already.
            weights: Arrays by name: ``"0"``, ``"1"`` … in a layer's own order.

        Raises:
            ArgumentError: The object around it is not there, or ``weights`` is no dict.
        """
        _check_dict(weights)
        *parents, name = object_path.split("/")
        around = self._follow("/".join(parents)) if parents else self.weights_dict
        around[name] = _arrays(weights)

    def delete_weight(self, object_name: str, weight_name: str) -> None:
        """Leaves an array of an object out.

        Raises:
            ArgumentError: There is no such object or array, or more than one object.
        """
        weights = self._object(object_name)
        if weight_name not in weights:
            raise ArgumentError(
                _OP,
                f"{object_name!r} has no weight {weight_name!r}",
                {"its weights": ", ".join(weights)},
            )
        del weights[weight_name]

    def add_weights(self, object_name: str, weights: Mapping[str, Any]) -> None:
        """Adds arrays to an object, or replaces those of the same names.

        Raises:
            ArgumentError: There is no such object, or more than one, or ``weights`` is
                no dict.
        """
        _check_dict(weights)
        self._object(object_name).update(_arrays(weights))

    def save(self, filepath: Any) -> None:
        """Writes a ``.weights.h5`` file, which Keras and ExBurn read.

        Raises:
            ArgumentError: The name has another ending.
            SaveError: The disk is full, or writing is not permitted.
        """
        path = Path(filepath)
        if not path.name.endswith(".weights.h5"):
            raise ArgumentError(
                _OP, f"the name must end in .weights.h5, received {path.name!r}"
            )
        stream = io.BytesIO()
        with self._h5py.File(stream, "w") as file:
            self._write(file, self.weights_dict, "")
        write_atomically(path, lambda target: target.write(stream.getvalue()))

    resave_weights = save

    def _write(self, group: Any, tree: Tree, path: str) -> None:
        own = {key: value for key, value in tree.items() if not isinstance(value, dict)}
        about = self.object_metadata.get(path, {})
        variables: Any = group.create_group("vars") if own or about else None
        for key, value in about.items():
            variables.attrs[key] = value
        for key, value in own.items():
            half = value.dtype.name == "bfloat16"
            dataset = variables.create_dataset(
                key, data=value.view("V2") if half else value
            )
            if half:
                dataset.attrs["dtype"] = "bfloat16"
        for key, value in tree.items():
            if isinstance(value, dict):
                self._write(group.create_group(key), value, f"{path}/{key}")

    # ------------------------------------------------------------------ finding
    def _find(self, name: str) -> tuple[Tree, str]:
        """The object around a named one, and the key in it."""
        if "/" in name:
            *parents, last = name.split("/")
            around = self._follow("/".join(parents))
            if last not in around:
                raise self._unknown(name)
            return around, last
        matches = [tree for tree in _trees(self.weights_dict) if name in tree]
        if not matches:
            raise self._unknown(name)
        if len(matches) > 1:
            raise ArgumentError(
                _OP,
                f"{len(matches)} objects are named {name!r}",
                hint="Give the whole path, as summary() shows it.",
            )
        return matches[0], name

    def _object(self, name: str) -> Tree:
        around, last = self._find(name)
        if not isinstance(around[last], dict):
            raise ArgumentError(_OP, f"{name!r} is a weight, and no object")
        return around[last]

    def _follow(self, path: str) -> Tree:
        tree = self.weights_dict
        for part in path.split("/"):
            if not isinstance(tree.get(part), dict):
                raise self._unknown(path)
            tree = tree[part]
        return tree

    def _unknown(self, name: str) -> ArgumentError:
        return ArgumentError(
            _OP,
            f"the file has no object {name!r}",
            hint="editor.summary() shows all of them.",
        )


def _check_dict(weights: Any) -> None:
    if not isinstance(weights, Mapping):
        raise ArgumentError(
            _OP,
            f"weights must be a dict of arrays by name, received {weights!r}",
            hint='{"0": kernel, "1": bias}',
        )


def _arrays(weights: Mapping[str, Any]) -> Tree:
    return {
        str(key): _arrays(v) if isinstance(v, Mapping) else np.asarray(v)
        for key, v in weights.items()
    }


def _trees(tree: Tree) -> Iterator[Tree]:
    yield tree
    for value in tree.values():
        if isinstance(value, dict):
            yield from _trees(value)


def _lines(tree: Tree, indent: str, first: bool = False) -> Iterator[str]:
    for number, (key, value) in enumerate(tree.items()):
        last = number == len(tree) - 1
        mark = "> " if first and not number else "└─ " if last else "├─ "
        if isinstance(value, dict):
            yield f"{indent}{mark}{key}"
            yield from _lines(value, indent + ("  " if last else "│ "))
        else:
            yield f"{indent}{mark}{key}: shape={value.shape}, dtype={value.dtype}"


def _spec(model: Any) -> Tree:
    """Shapes that a model needs, in the form of a file."""
    spec: Tree = {}
    for path, layer in walk(model, lambda path: True):
        weights = own_weights(layer) if isinstance(layer, Layer) else []
        if not weights:
            continue
        tree = spec
        for part in path.split("/") if path else []:
            tree = tree.setdefault(part, {})
        tree |= {str(n): tuple(w.shape) for n, w in enumerate(weights)}
    return spec


def _compare(own: Tree, other: Tree, path: str, count: dict[str, int]) -> None:
    def differs(text: str) -> None:
        count["error_count"] += 1
        print_text(f"...{text}")

    for key in [*other, *(key for key in own if key not in other)]:
        where = f"{path}/{key}"
        mine, theirs = own.get(key), other.get(key)
        if mine is None or theirs is None:
            kind = "Object" if isinstance(mine or theirs, dict) else "Weight"
            there, missing = ("file", "model") if theirs is None else ("model", "file")
            differs(f"{kind} {where} is in the {there}, and not in the {missing}")
        elif isinstance(mine, dict) != isinstance(theirs, dict):
            differs(f"{where} is an object in one, and a weight in the other")
        elif isinstance(mine, dict):
            _compare(mine, theirs, where, count)
        elif tuple(mine.shape) != theirs:
            differs(f"{where} has shape {mine.shape}; the model needs {theirs}")
        else:
            count["match_count"] += 1
