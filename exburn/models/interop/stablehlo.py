"""Programs that ``model.export`` or ``jax.export`` wrote."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from exburn.core.symbolic_shapes import describe
from exburn.errors import (
    ArgumentError,
    DataError,
    FileFormatError,
    ShapeError,
)
from exburn.export.open_sizes import solve_sizes
from exburn.export.signature import names_of
from exburn.export.stablehlo import input_names, load
from exburn.models.interop.rows import as_dtype, in_batches

__all__ = ["StoredProgram", "is_exported", "load", "predict_exported", "read"]


@dataclasses.dataclass(frozen=True)
class StoredProgram:
    """A program, and what its file tells of it.

    Attributes:
        input_names: A name for each of its arrays, if the file has them.
    """

    exported: Any
    input_names: list[str] | None


def read(data: bytes | bytearray) -> StoredProgram:
    """The program in the bytes of a file."""
    return StoredProgram(load(data), input_names(data))


def is_exported(model: Any) -> bool:
    """Whether a value is a ``jax.export.Exported``, or was read from a file."""
    from jax import export

    return isinstance(model, export.Exported | StoredProgram)


def predict_exported(model: Any, x: Any, batch_size: int | None) -> Any:
    """Outputs of an exported program of one argument.

    Args:
        x: Arrays in the structure of its argument; a list of them in its order; or a
            dict by their names, if the file has them.
        batch_size: Rows of a batch. Programs of a fixed batch size run in that one.
    """
    exported, input_names = model, None
    if isinstance(model, StoredProgram):
        exported, input_names = model.exported, model.input_names
    in_tree = exported.in_tree
    if len(in_tree.children()[0].children()) != 1:
        raise ArgumentError(
            "predict",
            f"the exported function takes other arguments than one x: {in_tree}",
            hint="Call it as it is: exported.call(...).",
        )
    x_tree = in_tree.children()[0].children()[0]
    leaves = _in_order(x, x_tree, input_names)
    leaves = [
        _fit(leaf, aval) for leaf, aval in zip(leaves, exported.in_avals, strict=True)
    ]
    solve_sizes(
        "predict",
        [aval.shape[1:] for aval in exported.in_avals],
        [leaf.shape[1:] for leaf in leaves],
    )
    fixed = exported.in_avals[0].shape[0]
    exact = isinstance(fixed, int)
    call = jax.jit(exported.call)

    def run(part: list[Any]) -> Any:
        try:
            return call(x_tree.unflatten(part))
        except jax.errors.JaxRuntimeError as error:
            if "Failed to deserialize" not in str(error):
                raise
            raise FileFormatError(
                "predict", "the exported program is damaged", {"cause": error}
            ) from error

    return in_batches(
        run,
        leaves,
        fixed if exact else batch_size,
        padded=exact,
        exact=exact,
    )


def _in_order(x: Any, treedef: Any, input_names: Sequence[str] | None) -> list[Any]:
    """The arrays of ``x`` in the program's order."""
    pairs, received = jax.tree_util.tree_flatten_with_path(x)
    paths, leaves = [path for path, _ in pairs], [leaf for _, leaf in pairs]
    count = treedef.num_leaves
    argument = treedef.unflatten(range(count))
    places = [path for path, _ in jax.tree_util.tree_flatten_with_path(argument)[0]]
    if paths == places:  # whether lists or tuples
        return leaves
    names = input_names or (
        names_of(argument, "input") if isinstance(argument, Mapping) else None
    )
    if isinstance(x, Mapping):
        if names and len(leaves) == count and set(x) == set(names):
            return [x[name] for name in names]
    elif len(leaves) == count and not any(_has_key(path) for path in paths):
        return leaves
    about: dict[str, Any] = {"wanted": treedef, "received": received}
    if names:
        about = {"names": ", ".join(map(repr, names)), **about}
    raise DataError(
        "predict",
        f"the program takes {count} arrays, received {len(leaves)}"
        if len(leaves) != count
        else "the program takes its arrays in another structure",
        about,
        hint="Pass the arrays in their structure, or a list of them in its order"
        + (", or a dict by these names." if names else "."),
    )


def _has_key(path: tuple[Any, ...]) -> bool:
    return any(isinstance(entry, jax.tree_util.DictKey) for entry in path)


def _fit(leaf: Any, aval: Any) -> np.ndarray:
    value = np.asarray(leaf)
    fits = value.ndim == len(aval.shape) and all(
        want == got or not isinstance(want, int)
        for want, got in zip(aval.shape[1:], value.shape[1:], strict=True)
    )
    if not fits:
        raise ShapeError(
            "predict",
            f"the program takes {describe(aval)}, received {describe(value)}",
            hint="The first axis counts the rows.",
        )
    return as_dtype(value, np.dtype(aval.dtype), "the input")
