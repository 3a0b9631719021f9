"""Programs that ``model.export`` or ``jax.export`` wrote."""

from __future__ import annotations

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
from exburn.export.stablehlo import load
from exburn.models.interop.rows import as_dtype, in_batches

__all__ = ["is_exported", "load", "predict_exported"]


def is_exported(model: Any) -> bool:
    """Whether a value is a ``jax.export.Exported``."""
    from jax import export

    return isinstance(model, export.Exported)


def predict_exported(exported: Any, x: Any, batch_size: int | None) -> Any:
    """Outputs of an exported program of one argument.

    Raises:
        ArgumentError: The program takes several arguments, or runs elsewhere.
        DataError, ShapeError: The inputs are not those of the program.
        FileFormatError: The program inside is damaged.
    """
    in_tree = exported.in_tree
    if len(in_tree.children()[0].children()) != 1:
        raise ArgumentError(
            "predict",
            f"the exported function takes other arguments than one x: {in_tree}",
            hint="Call it as it is: exported.call(...).",
        )
    x_tree = in_tree.children()[0].children()[0]
    leaves, treedef = jax.tree.flatten(x)
    if len(leaves) != len(exported.in_avals):
        raise DataError(
            "predict",
            f"the program takes {len(exported.in_avals)} arrays, received "
            f"{len(leaves)}",
            {"wanted": x_tree, "received": treedef},
        )
    leaves = [
        _fit(leaf, aval) for leaf, aval in zip(leaves, exported.in_avals, strict=True)
    ]
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
