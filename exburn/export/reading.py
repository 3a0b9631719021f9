"""Reading an archive of programs back."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, DataError, MissingFileError, ModelFormatError
from exburn.errors.boundary import api_boundary, guard_methods
from exburn.export import stablehlo
from exburn.export.archive import ARRAYS, FORMAT, MANIFEST
from exburn.export.open_sizes import solve_sizes
from exburn.runtime.files.ordinary import Source
from exburn.saving.seal import read_document
from exburn.saving.shards import TensorFile

_OP = "load_archive"


@guard_methods
class LoadedArchive:
    """What ``load_archive`` read: endpoints and collections are attributes.

    Args:
        endpoints: The programs by name; the first is ``serving_default``, too.
        collections: Lists of arrays by name.
        variables: Arrays of the tracked weights, in the order of the model's.
        trainable: Which of them are trained.

    Attributes:
        endpoints: The programs by name; the first is ``serving_default``, too.
        collections: Lists of arrays by name.
        variables, trainable_variables, non_trainable_variables: Arrays of the tracked
            weights, in the order of the model's.

    Example:
        >>> archive = LoadedArchive({"double": lambda x: 2 * x}, {}, [], [])
        >>> archive.double(3)
        6
    """

    def __init__(
        self,
        endpoints: Mapping[str, Callable],
        collections: Mapping[str, list],
        variables: list,
        trainable: list[bool],
    ):
        self.endpoints, self.collections = dict(endpoints), dict(collections)
        self.variables = variables
        pairs = list(zip(variables, trainable, strict=True))
        self.trainable_variables = [v for v, learns in pairs if learns]
        self.non_trainable_variables = [v for v, learns in pairs if not learns]

    def __getattr__(self, name: str) -> Any:
        held = vars(self)
        for group in ("endpoints", "collections"):
            if name in held.get(group, ()):
                return held[group][name]
        if name == "serving_default" and held.get("endpoints"):
            return next(iter(self.endpoints.values()))
        raise AttributeError(f"the archive has no {name!r}", name=name, obj=self)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.endpoints, *self.collections]

    def __repr__(self) -> str:
        return f"<LoadedArchive endpoints={list(self.endpoints)}>"


@api_boundary
def load_archive(filepath: Any) -> LoadedArchive:
    """Reads a folder that ``ExportArchive.write_out`` wrote.

    Args:
        filepath: The folder.

    Raises:
        ArgumentError: There is no archive in it.
        ModelFormatError, FileFormatError: It is damaged.
        MissingDependencyError: flatbuffers is not installed.

    Example:
        >>> import tempfile
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((3,)), exburn.layers.Dense(2)])
        >>> folder = tempfile.mkdtemp()
        >>> archive = exburn.export.ExportArchive()
        >>> specs = [exburn.InputSpec(shape=(None, 3))]
        >>> _ = archive.track_and_add_endpoint("serve", model, specs)
        >>> archive.write_out(folder, verbose=False)
        >>> sorted(load_archive(folder).endpoints)
        ['serve']
    """
    folder = Path(filepath)
    if not (folder / MANIFEST).is_file():
        raise ArgumentError(
            _OP, f"there is no archive in the folder {os.fspath(folder)!r}"
        )
    about = read_document(folder / MANIFEST, FORMAT, _OP)
    if not _is_sound(about):
        raise _damage_error(folder, f"{MANIFEST} does not describe an archive")
    try:
        endpoints = {name: _endpoint(folder, name) for name in about["endpoints"]}
        collections = {name: _arrays(folder, name) for name in about["collections"]}
        variables = _arrays(folder, "variables")
    except MissingFileError as error:
        raise _damage_error(folder, error) from error
    if len(variables) != len(about["trainable"]):
        raise _damage_error(folder, "its variables are not those that are described")
    return LoadedArchive(endpoints, collections, variables, about["trainable"])


def _is_sound(about: Mapping[str, Any]) -> bool:
    """Tells whether a description has what is read of it, and names plain files."""
    endpoints, collections = about.get("endpoints"), about.get("collections")
    trainable = about.get("trainable")
    if not all(isinstance(v, list) for v in (endpoints, collections, trainable)):
        return False
    names = [*about["endpoints"], *about["collections"]]
    return (
        all(isinstance(name, str) and name.isidentifier() for name in names)
        and len({*names, "variables"}) == len(names) + 1
        and all(isinstance(learns, bool) for learns in about["trainable"])
    )


def _damage_error(folder: Path, cause: Any) -> ModelFormatError:
    reason = f"the archive in {os.fspath(folder)!r} is damaged"
    return ModelFormatError(_OP, reason, {"cause": cause})


def _arrays(folder: Path, name: str) -> list[np.ndarray]:
    path = folder / f"{name}.safetensors"
    with TensorFile(path, op=_OP) as file:
        numbers = [str(number) for number in range(len(file.entries))]
        if file.format != ARRAYS or {*file.entries} != {*numbers}:
            raise _damage_error(folder, f"{path.name} does not hold its arrays")
        arrays = file.read(numbers)
    return [arrays[number] for number in numbers]


def _endpoint(folder: Path, name: str) -> Callable[..., Any]:
    with Source(folder / f"{name}.stablehlo", op=_OP) as file:
        return _callable(name, file.read(0, file.size))


def _callable(name: str, data: bytes) -> Callable[..., Any]:
    """A function of the program's arguments, cast to its dtypes."""
    program = stablehlo.load(data)
    arguments = program.in_tree.children()[0]
    call = jax.jit(program.call)

    def run(*args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        if tree != arguments:
            raise DataError(
                name,
                "the arguments have another structure",
                {"needed": arguments, "received": tree},
            )
        for value, wanted in zip(leaves, program.in_avals, strict=True):
            sizes = zip(wanted.shape, np.shape(value), strict=False)
            fits = len(wanted.shape) == np.ndim(value) and all(
                want == got or not isinstance(want, int) for want, got in sizes
            )
            if not fits:
                raise DataError(
                    name, f"it takes {describe(wanted)}, received {describe(value)}"
                )
        solve_sizes(
            name,
            [wanted.shape for wanted in program.in_avals],
            [np.shape(value) for value in leaves],
        )
        cast = [
            jnp.asarray(value, wanted.dtype)
            for value, wanted in zip(leaves, program.in_avals, strict=True)
        ]
        return call(*jax.tree.unflatten(tree, cast))

    run.__name__ = name
    return run
