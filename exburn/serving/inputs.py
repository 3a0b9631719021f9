"""What a request must look like: checked in the caller, before it is queued."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from exburn.core.precision import is_float
from exburn.core.symbolic_shapes import canonical_spec, describe, spec_of
from exburn.data import ArrayDataset, ReadOptions, as_dataset, check_finite
from exburn.errors import DataError, DTypeError, ShapeError


class Inputs:
    """The arrays of one kind of request, without their batch axis.

    Args:
        specs: A tree of specs with a batch axis of any size; all other sizes are fixed.
        names: Names of a model's inputs, which a request may be a dict of.

    Attributes:
        names: One name an array, for errors.
        shapes: Shapes of one row.
        dtypes: What the arrays are converted to.
    """

    def __init__(self, specs: Any, names: tuple[str, ...] | None = None):
        paths, self._treedef = jax.tree_util.tree_flatten_with_path(specs)
        self._named = names
        leaves = [spec for _, spec in paths]
        self._by_name = dict(zip(names, leaves, strict=True)) if names else None
        if names is not None:
            self.names = tuple(f"input {name!r}" for name in names)
        else:
            self.names = tuple(f"x{jax.tree_util.keystr(path)}" for path, _ in paths)
        self.shapes = tuple(tuple(spec.shape[1:]) for _, spec in paths)
        self.dtypes = tuple(np.dtype(canonical_spec(spec).dtype) for _, spec in paths)
        self._single = self._treedef == jax.tree.structure(0)

    def pack(self, values: Any) -> Any:
        """The tree that the program takes, from its leaves in order."""
        return jax.tree.unflatten(self._treedef, values)

    def specs(self, rows: int) -> list[jax.ShapeDtypeStruct]:
        """Specs of the leaves for a batch of so many rows."""
        return [
            jax.ShapeDtypeStruct((rows, *shape), dtype)
            for shape, dtype in zip(self.shapes, self.dtypes, strict=True)
        ]

    def match(self, x: Any, *, finite: bool, copy: bool) -> list[np.ndarray]:
        """A request as NumPy arrays in the program's order, shapes and dtypes.

        Args:
            x: An array or a tree of arrays that share their number of rows.
            finite: Whether NaN and infinity are refused.
            copy: Whether the arrays are copied, because the caller may change them.

        Raises:
            DataError, DTypeError, ShapeError: The request does not fit.
        """
        if type(x) is np.ndarray and self._is_one(x):
            if finite:
                check_finite((x,), ("x",), op="serving")
            return [x.copy() if copy else x]
        options = ReadOptions(finite=finite, inputs=self._by_name)
        dataset = as_dataset(x, op="serving", options=options)
        if not isinstance(dataset, ArrayDataset):
            raise DTypeError(
                "serving",
                f"a request holds arrays, received {type(x).__name__}",
                hint="For many requests one after the other: serving.stream(loader).",
            )
        tree = dataset.tree[0]
        if finite:
            check_finite((tree,), ("x",), op="serving")
        leaves = self._leaves(tree)
        return [self._fit(leaf, i, copy=copy) for i, leaf in enumerate(leaves)]

    def _is_one(self, x: np.ndarray) -> bool:
        """Whether the array is a request as it stands: nothing is left to check."""
        return (
            self._single
            and x.ndim > 0
            and len(x) > 0
            and x.shape[1:] == self.shapes[0]
            and x.dtype == self.dtypes[0]
        )

    def _leaves(self, tree: Any) -> list[Any]:
        names = self._named
        if names is not None and isinstance(tree, Mapping):
            if set(names) <= set(tree):
                return [tree[name] for name in names]
            raise self._wrong(tree)
        leaves, treedef = jax.tree.flatten(tree)
        fits = len(leaves) == len(self.names)
        if not fits or (names is None and treedef != self._treedef):
            raise self._wrong(tree)
        return leaves

    def _wrong(self, tree: Any) -> DataError:
        if isinstance(tree, Mapping):
            received = "a dict of " + ", ".join(map(repr, tree))
        else:
            received = ", ".join(describe(leaf) for leaf in jax.tree.leaves(tree))
        return DataError(
            "serving",
            f"a request must hold {', '.join(self.names)}",
            {"received": received},
            hint="Pass the arrays in the structure of the example, or by name.",
        )

    def _fit(self, leaf: Any, index: int, *, copy: bool) -> np.ndarray:
        name, shape, dtype = self.names[index], self.shapes[index], self.dtypes[index]
        value = np.asarray(leaf)
        if value.shape[1:] != shape and value.shape[1:] + (1,) == shape:
            value = value[..., None]  # Keras adds a missing last axis of size 1
        if value.shape[1:] != shape:
            spec = describe(spec_of((None, *shape), dtype))
            raise ShapeError(
                "serving",
                f"{name} must be {spec}, received {describe(leaf)}",
                hint="The first axis counts the rows of the request.",
            )
        if value.dtype != dtype:
            cuts = is_float(value.dtype) and not is_float(dtype)
            if cuts and not np.array_equal(value, np.floor(value)):
                raise DataError(
                    "serving",
                    f"{name} must hold {dtype}, received {describe(leaf)} with "
                    "fractions",
                    hint=f"Round it, or cut the fractions off: x.astype('{dtype}').",
                )
            value = value.astype(dtype)
        elif copy:
            value = value.copy()
        return value
