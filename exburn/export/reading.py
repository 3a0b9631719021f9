"""Reading an archive of programs back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, DataError, ModelFormatError, require
from exburn.export import stablehlo
from exburn.export.archive import FORMAT, MANIFEST
from exburn.export.open_sizes import solve_sizes


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
            "load_archive", f"there is no archive in the folder {str(folder)!r}"
        )
    try:
        about = json.loads((folder / MANIFEST).read_text())
        fits = about["format"] == FORMAT and all(
            isinstance(name, str) and name.isidentifier()
            for name in (*about["endpoints"], *about["collections"])
        )
        trainable = [bool(learns) for learns in about["trainable"]]
    except (ValueError, KeyError, TypeError) as error:
        raise _damage_error(folder, error) from error
    if not fits:
        raise _damage_error(folder, None)
    try:
        endpoints = {
            name: _callable(name, (folder / f"{name}.stablehlo").read_bytes())
            for name in about["endpoints"]
        }
        collections = {name: _arrays(folder, name) for name in about["collections"]}
        variables = _arrays(folder, "variables")
        return LoadedArchive(endpoints, collections, variables, trainable)
    except (OSError, ValueError) as error:
        if hasattr(error, "op"):
            raise
        raise _damage_error(folder, error) from error


def _damage_error(folder: Path, cause: Any) -> ModelFormatError:
    return ModelFormatError(
        "load_archive",
        f"the archive in {str(folder)!r} is damaged",
        None if cause is None else {"cause": f"{type(cause).__name__}: {cause}"},
    )


def _arrays(folder: Path, name: str) -> list[np.ndarray]:
    files = require("safetensors.numpy", "load_archive", "it needs safetensors")
    try:
        held = files.load((folder / f"{name}.safetensors").read_bytes())
    except Exception as error:  # whatever safetensors raises for other bytes
        raise _damage_error(folder, error) from error
    return [held[key] for key in sorted(held, key=int)]


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
