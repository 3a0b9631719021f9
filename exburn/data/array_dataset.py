"""Arrays that are held whole."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np

from exburn.data.arrays import on_host
from exburn.data.checks import prepare
from exburn.data.frames import ReadOptions
from exburn.data.trees import Tree, leaves, map_leaves
from exburn.errors import ArgumentError


class ArrayDataset:
    """Arrays that are held whole and share their leading length.

    NumPy arrays are not copied unless their dtype must change; JAX arrays stay on
    their device.

    Args:
        x: An array, or a nested dict, list or tuple of arrays.
        y: Targets of the same leading length, or None.
        sample_weight: One weight a row (or a value), or None.
        options: What the model takes, if it is known.

    Attributes:
        check: Called with rows to raise if their values cannot be used; only where they
            are to be looked at when they are read, instead of all of them at first.

    Shape: every array: ``[size, …]``.

    Raises:
        DataError: Empty data, unequal lengths, negative or NaN weights.
        DTypeError: Object, string, complex or ragged arrays; integers beyond int32.
        ShapeError: A scalar instead of an array; weights that do not fit y.

    Example:
        >>> data = ArrayDataset(np.eye(3), np.array([0, 1, 2]))
        >>> data.size, data.tree[0].dtype.name, data.take([2, 0])[1].tolist()
        (3, 'float32', [2, 0])
    """

    check: Callable[[tuple], None] | None = None

    def __init__(
        self,
        x: Tree,
        y: Tree = None,
        sample_weight: Tree = None,
        *,
        op: str = "fit",
        options: ReadOptions | None = None,
    ):
        self.tree = prepare(x, y, sample_weight, op, options=options)
        arrays = [leaf for _, leaf in leaves(self.tree, "")]
        self.size: int = len(arrays[0])
        self.nbytes: int = sum(leaf.nbytes for leaf in arrays)

    def __len__(self) -> int:
        return self.size

    @property
    def on_device(self) -> bool:
        """Whether every array is in the memory of an accelerator."""
        return all(on_host(leaf) is None for _, leaf in leaves(self.tree, ""))

    @property
    def is_memory_mapped(self) -> bool:
        """Whether an array is a file's, mapped into memory."""
        return any(_is_mapped(leaf) for _, leaf in leaves(self.tree, ""))

    def take(self, indices: Any) -> tuple:
        """Rows as NumPy arrays on the host; a slice of NumPy data is a view."""
        if not isinstance(indices, slice):
            indices = np.asarray(indices, dtype=np.intp)
            if indices.size and not 0 <= indices.min() <= indices.max() < self.size:
                raise ArgumentError(
                    "take",
                    f"indices must lie in 0 … {self.size - 1}",
                    {"received": f"{indices.min()} … {indices.max()}"},
                )

        def rows(_: str, leaf: Any) -> np.ndarray:
            host = on_host(leaf)
            if host is None:
                return np.asarray(leaf[indices])
            return (
                host[indices] if isinstance(indices, slice) else host.take(indices, 0)
            )

        return map_leaves(rows, self.tree, "")

    def rows(self, start: int, stop: int) -> ArrayDataset:
        """The rows from ``start`` to ``stop``, on the device where they are."""
        tree = map_leaves(lambda _, leaf: leaf[start:stop], self.tree, "")
        return ArrayDataset.of(tree)

    @classmethod
    def of(cls, tree: tuple) -> ArrayDataset:
        """Parts and views of checked arrays, which need no check of their own."""
        dataset = object.__new__(cls)
        arrays = [leaf for _, leaf in leaves(tree, "")]
        dataset.tree, dataset.size = tree, len(arrays[0])
        dataset.nbytes = sum(leaf.nbytes for leaf in arrays)
        return dataset

    def like(self, tree: tuple) -> ArrayDataset:
        """A data set of other checked rows, or other arrays, for the same model."""
        return ArrayDataset.of(tree)


def _is_mapped(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap)
