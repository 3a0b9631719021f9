"""A data set of arrays, some of them of rows of unlike lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from exburn.data.array_dataset import ArrayDataset
from exburn.data.buckets import choose_buckets
from exburn.data.padded import Padded
from exburn.data.ragged import RaggedArray, is_ragged
from exburn.data.trees import NAMES, leaves, map_leaves
from exburn.errors import DataError, ExBurnError, ShapeError, locate

_LOOKED_AT = 1 << 10  # rows that are checked at a time


class RaggedDataset(ArrayDataset):
    """Arrays that are held whole, some of them of rows of unlike lengths.

    Args:
        tree: ``(x, y, sample_weight)``: trees of arrays and of `RaggedArray`.
        widths: What a model's inputs fix: the width of each ragged array of ``x``, or
            ``None``; for all of them by default.

    Attributes:
        axes: The lengths of the rows, for each axis of time: arrays whose rows are
            equally long share one.

    Raises:
        DataError: Targets, or weights, of other lengths than all inputs.

    Example:
        >>> rows = RaggedArray(np.arange(5), np.array([3, 2]))
        >>> data = RaggedDataset((rows, np.zeros(2), None))
        >>> data.fill(np.array([1]), (4,)).tree[0].values.tolist()
        [[3, 4, 0, 0]]
    """

    def __init__(
        self, tree: tuple, widths: Sequence[int | None] | None = None, op: str = "fit"
    ):
        self.tree = tree
        arrays = [leaf for _, leaf in leaves(tree, "")]
        self.size = len(arrays[0])
        self.nbytes = sum(leaf.nbytes for leaf in arrays)
        self.axes: list[np.ndarray] = []
        self._buckets: dict[int, list[tuple[np.ndarray, tuple[int, ...]]]] = {}
        self._fixed: list[int | None] = []
        self._axis_of: dict[int, int] = {}
        ragged = [(p, v) for p, v in leaves(tree[0], "x") if is_ragged(v)]
        for (_, array), fixed in zip(
            ragged, widths or [None] * len(ragged), strict=True
        ):
            self._add(array, fixed)
        self._check_fixed(ragged, op)
        for part, name in zip(tree[1:], NAMES[1:], strict=True):
            for path, array in leaves(part, name):
                if is_ragged(array) and self._find(array) is None:
                    raise self._unlike(path, array, ragged, op)

    @classmethod
    def of(cls, tree: tuple) -> RaggedDataset:
        """A data set of checked arrays."""
        return cls(tree)

    def like(self, tree: tuple) -> RaggedDataset:
        """A data set of other rows, or other arrays, for the same model."""
        ragged = [v for _, v in leaves(self.tree[0], "x") if is_ragged(v)]
        return RaggedDataset(tree, [self._fixed[self._axis_of[id(v)]] for v in ragged])

    @property
    def on_device(self) -> bool:
        return False

    @property
    def is_memory_mapped(self) -> bool:
        return False

    def take(self, indices: Any) -> tuple:
        """Rows on the host; the ragged ones are not filled up."""
        return map_leaves(lambda _, leaf: leaf[indices], self.tree, "")

    def rows(self, start: int, stop: int) -> RaggedDataset:
        """The rows from ``start`` to ``stop``."""
        return self.like(self.take(slice(start, stop)))

    def buckets(self, batch_size: int) -> list[tuple[np.ndarray, tuple[int, ...]]]:
        """The rows of each bucket, and the width of each axis in it."""
        if batch_size not in self._buckets:
            self._buckets[batch_size] = self._cut(batch_size)
        return self._buckets[batch_size]

    def _cut(self, batch_size: int) -> list[tuple[np.ndarray, tuple[int, ...]]]:
        free = [v for v, w in zip(self.axes, self._fixed, strict=True) if w is None]
        if not free:
            return [(np.arange(self.size), self.widest)]
        buckets = []
        for rows, widths in choose_buckets(free, batch_size):
            left = iter(widths)
            every = (next(left) if w is None else w for w in self._fixed)
            buckets.append((rows, tuple(every)))
        return buckets

    def fixed_or(self, widths: Sequence[int]) -> tuple[int, ...]:
        """Widths of the axes: those that the model fixes, else the given ones."""
        pairs = zip(self._fixed, widths, strict=True)
        return tuple(width if fixed is None else fixed for fixed, width in pairs)

    @property
    def widest(self) -> tuple[int, ...]:
        """The width of each axis that all rows fit into."""
        return self.fixed_or([int(v.max()) for v in self.axes])

    def fill(self, rows: np.ndarray, widths: Sequence[int]) -> ArrayDataset:
        """Some rows, with the ragged ones filled up to the width of their axis."""

        def fill_leaf(name: str, leaf: Any) -> Any:
            if not is_ragged(leaf):
                return np.asarray(leaf)[rows]
            axis = self._find(leaf)
            assert axis is not None
            if name.startswith("[0]"):
                values = leaf.fill(rows, widths[axis])
                return Padded(values, leaf.lengths[rows].astype(np.int32), axis)
            return leaf.fill(rows, widths[axis], repeat=name.startswith("[1]"))

        return ArrayDataset.of(map_leaves(fill_leaf, self.tree, ""))

    def check_rows(self, check: Callable[[tuple], None]) -> None:
        """Calls a check with all rows, filled up; its error names the row.

        Raises:
            ExBurnError: What the check raises, with the number of the first bad row.
        """
        order = np.argsort(np.sum(self.axes, axis=0), kind="stable")
        for start in range(0, self.size, _LOOKED_AT):
            rows = order[start : start + _LOOKED_AT]
            widths = self.fixed_or([int(v[rows].max()) for v in self.axes])
            try:
                check(self.fill(rows, widths).tree)
            except ExBurnError:
                for row in range(self.size):
                    self._check_row(row, check)
                raise

    def _check_row(self, row: int, check: Callable[[tuple], None]) -> None:
        lengths = [int(v[row]) for v in self.axes]
        try:
            check(self.fill(np.array([row]), self.fixed_or(lengths)).tree)
        except ExBurnError as error:
            locate(error, f"in row {row}, by itself")
            raise

    def batch_specs(self, rows: int) -> tuple:
        """Specs of a batch of so many rows, filled up to the longest."""
        batch = self.fill(np.zeros(1, int), self.widest).tree
        return jax.tree.map(
            lambda v: jax.ShapeDtypeStruct((rows, *v.shape[1:]), v.dtype), batch
        )

    def _add(self, array: RaggedArray, fixed: int | None) -> None:
        axis = self._find(array)
        if axis is None or self._fixed[axis] != fixed:
            self.axes.append(array.lengths)
            self._fixed.append(fixed)
            axis = len(self.axes) - 1
        self._axis_of[id(array)] = axis

    def _check_fixed(self, ragged: list, op: str) -> None:
        for path, array in ragged:
            fixed = self._fixed[self._axis_of[id(array)]]
            if fixed is not None and (too_long := array.lengths > fixed).any():
                row = int(too_long.argmax())
                raise ShapeError(
                    op,
                    f"{path} must have rows of at most {fixed} positions",
                    {
                        "first longer row": f"{row}: {array.lengths[row]} positions",
                        "longer rows": int(too_long.sum()),
                    },
                    hint=f"Cut them, or leave {fixed} out of the model's Input: None.",
                )

    def _find(self, array: RaggedArray) -> int | None:
        """The axis whose lengths an array has."""
        if (axis := self._axis_of.get(id(array))) is not None:
            return axis
        same = (np.array_equal(v, array.lengths) for v in self.axes)
        return next((i for i, equal in enumerate(same) if equal), None)

    def _unlike(
        self, path: str, array: RaggedArray, ragged: list, op: str
    ) -> DataError:
        if not ragged:
            return DataError(
                op,
                f"{path} has rows of unlike lengths, but no input has",
                hint="Targets for each position need inputs with as many positions.",
            )
        name, nearest = min(
            ragged, key=lambda pair: (pair[1].lengths != array.lengths).sum()
        )
        row = int((nearest.lengths != array.lengths).argmax())
        return DataError(
            op,
            f"{path} must have as many positions in each row as {name}",
            {
                "first row that differs": f"{row}: {array.lengths[row]} in {path}, "
                f"{nearest.lengths[row]} in {name}"
            },
            hint="Give a target for each position, or one for each row.",
        )
