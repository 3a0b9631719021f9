"""Splitting, batching, encoding and describing arrays."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from numbers import Real
from typing import Any

import numpy as np

from exburn.core.checks import check_count, check_number, check_optional
from exburn.data import (
    ArrayDataset,
    StreamDataset,
    leaves,
    map_leaves,
    register_adapter,
)
from exburn.errors import ArgumentError, DataError, DTypeError
from exburn.errors.boundary import api_boundary, guard_methods

__all__ = [
    "Loader",
    "generator",
    "loader",
    "one_hot",
    "split",
    "stats",
    "train_test",
]


def generator(seed: Any, op: str) -> np.random.Generator:
    """NumPy's generator for a seed, or a fresh one for None.

    Raises:
        ArgumentError: The seed is something else than None or integers from 0.
    """
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            op, f"seed must be None or an integer ≥ 0, received {seed!r}"
        ) from error


@api_boundary
def split(
    x: Any,
    y: Any = None,
    *,
    val_split: float = 0.2,
    shuffle: bool = True,
    seed: int | None = None,
) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    r"""Splits into training and validation parts.

    :math:`n_{val} = \lfloor n \cdot val\_split + 1/2 \rfloor`; without shuffling
    the validation part is the last rows.

    Args:
        x: An array or nested arrays.
        y: Targets of the same length, or None.
        val_split: Fraction of the rows, between 0 and 1.
        shuffle: Whether to permute the rows first.
        seed: Of the permutation; None draws a new one each time.

    Shape: ``[n, …]`` → ``[n - n_val, …]`` and ``[n_val, …]``.

    Raises:
        ArgumentError: ``val_split`` outside (0, 1), or no such seed.
        DataError: Unequal lengths, or a part that would be empty.

    Example:
        >>> (x, y), (xv, yv) = split(np.arange(10.0), np.arange(10), seed=0)
        >>> len(x), len(xv), bool((x == y).all())
        (8, 2, True)

    Source: ExBurn (Elixir), ``ExBurn.Dataset.split``.
    """
    if not isinstance(val_split, Real) or not 0 < val_split < 1:
        raise ArgumentError(
            "split", "val_split must lie between 0 and 1", {"received": val_split}
        )
    data = ArrayDataset(x, y, op="split")
    count = math.floor(data.size * val_split + 0.5)
    if not 0 < count < data.size:
        raise DataError(
            "split",
            f"val_split={val_split} of {data.size} rows leaves a part empty",
        )
    at = data.size - count
    if not shuffle:
        return data.rows(0, at).tree[:2], data.rows(at, data.size).tree[:2]
    order = generator(seed, "split").permutation(data.size)
    return data.take(order[:at])[:2], data.take(order[at:])[:2]


def train_test(
    x: np.ndarray, y: np.ndarray, test_split: float, seed: int | None, op: str
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """The seeded split that the data sets of this package share.

    Raises:
        ArgumentError: ``test_split`` outside [0, 1).
    """
    test_split = check_number(op, "test_split", test_split, high=1, open_high=True)
    order = generator(seed, op).permutation(len(x))
    at = len(x) - math.floor(len(x) * test_split + 0.5)
    return (x[order[:at]], y[order[:at]]), (x[order[at:]], y[order[at:]])


@guard_methods
class Loader:
    """Batches of arrays, in a new seeded order every epoch.

    Each ``for`` loop over it is an epoch; ``set_epoch`` chooses which one comes next,
    so that a resumed run sees the order it would have seen.

    Args:
        x: An array or nested arrays.
        y: Targets, or None: then batches are bare x.
        batch_size: Rows of a batch.
        shuffle: Whether to permute the rows every epoch.
        drop_last: Whether to leave out a last batch that is not full.
        seed: Of the permutations; None draws one for this loader.

    Shape: batches of ``[batch_size, …]``, the last one may be shorter.

    Raises:
        ArgumentError: ``batch_size`` below 1, or no such seed.
        DataError: Unequal lengths or empty data.

    Example:
        >>> batches = Loader(np.arange(5.0), np.arange(5), batch_size=2, seed=1)
        >>> len(batches), [len(x) for x, y in batches]
        (3, [2, 2, 1])
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        *,
        batch_size: int = 32,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int | None = None,
    ):
        self.batch_size = check_count("loader", "batch_size", batch_size)
        generator(seed, "loader")
        self.data = ArrayDataset(x, y, op="loader")
        self.shuffle, self.drop_last = shuffle, drop_last
        self.seed = secrets.randbits(63) if seed is None else seed
        self._epoch = 0

    def __len__(self) -> int:
        if self.drop_last:
            return self.data.size // self.batch_size
        return math.ceil(self.data.size / self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next loop the one of ``epoch``."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        order = np.arange(self.data.size)
        if self.shuffle:
            order = np.random.default_rng((self.seed, epoch)).permutation(order)
        for at in range(len(self)):
            rows = order[at * self.batch_size : (at + 1) * self.batch_size]
            x, y, _ = self.data.take(rows)
            yield x if y is None else (x, y)


@register_adapter
class LoaderAdapter:
    """Lets ``fit`` take a `Loader`."""

    def accepts(self, value: Any) -> bool:
        return isinstance(value, Loader)

    def load(self, value: Loader) -> StreamDataset:
        def start(epoch: int) -> Iterator:
            value.set_epoch(epoch)
            # A bare x that is itself a list or tuple must not be read as (x, y).
            return ((b,) if value.data.tree[1] is None else b for b in value)

        return StreamDataset(
            start, batches=len(value), batch_size=value.batch_size, name="Loader"
        )


@api_boundary
def loader(
    x: Any,
    y: Any = None,
    *,
    batch_size: int = 32,
    shuffle: bool = True,
    drop_last: bool = False,
    seed: int | None = None,
) -> Loader:
    """Batches of arrays that can be looped over again and again: see `Loader`.

    Args:
        x: Inputs, an array or a dict of them.
        y: Targets, if there are any.
        batch_size: Rows in a batch.
        shuffle: Whether every pass has its own random order.
        drop_last: Whether a smaller last batch is left out.
        seed: Of the orders; random by default.

    Example:
        >>> [x.tolist() for x in loader(np.arange(3), batch_size=2, shuffle=False)]
        [[0, 1], [2]]
    """
    return Loader(
        x, y, batch_size=batch_size, shuffle=shuffle, drop_last=drop_last, seed=seed
    )


@api_boundary
def one_hot(labels: Any, num_classes: int | None = None) -> np.ndarray:
    """Integer labels as rows of zeros with a single one.

    Args:
        labels: Integers from 0, as integers or whole floats.
        num_classes: Width of the rows; the largest label + 1 by default.

    Shape: ``[…] → […, num_classes]``, float32.

    Raises:
        ArgumentError: ``num_classes`` is no positive integer.
        DTypeError: Labels that are not whole numbers.
        DataError: A label below 0 or not below ``num_classes``.

    Example:
        >>> one_hot([0, 2, 1]).tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    labels = np.asarray(labels)
    if not labels.size:
        raise DataError("one_hot", "labels are empty")
    num_classes = check_optional(check_count, "one_hot", "num_classes", num_classes)
    whole = labels.dtype.kind in "iub"
    if labels.dtype.kind == "f":
        whole = bool(np.all(labels == np.floor(labels)) and np.isfinite(labels).all())
    if not whole:
        raise DTypeError(
            "one_hot",
            "labels must be whole numbers",
            {"received": f"{labels.dtype}{list(labels.shape)}"},
            hint="np.unique(labels, return_inverse=True) numbers any labels.",
        )
    width = int(labels.max()) + 1 if num_classes is None else num_classes
    wrong = (labels < 0) | (labels >= width)
    if wrong.any():
        at = np.unravel_index(int(wrong.argmax()), labels.shape)
        raise DataError(
            "one_hot",
            f"labels must lie in 0 … {width - 1}",
            {"first bad value": f"{labels[at]} at {tuple(int(i) for i in at)}"},
            hint="Classes are counted from 0: num_classes must be the largest label "
            "and one more, or None.",
        )
    rows = np.zeros((labels.size, width), np.float32)
    rows[np.arange(labels.size), labels.reshape(-1).astype(np.intp)] = 1
    return rows.reshape(*labels.shape, width)


@api_boundary
def stats(x: Any, y: Any = None) -> dict[str, Any]:
    """Number of samples, and shape and dtype of one input and one target.

    Args:
        x: An array or nested arrays.
        y: Targets, or None.

    Raises:
        DataError: Unequal lengths or empty data.

    Example:
        >>> found = stats(np.zeros((4, 28, 28), np.uint8), np.zeros(4, np.int32))
        >>> found["num_samples"], found["input_shape"], found["target_type"]
        (4, (28, 28), 'int32')
    """
    data = ArrayDataset(x, y, op="stats")

    def each(tree: Any, read: Any) -> Any:
        return map_leaves(lambda _, leaf: read(leaf), tree, "")

    inputs, targets, _ = data.tree
    return {
        "num_samples": data.size,
        "input_shape": each(inputs, lambda a: a.shape[1:]),
        "target_shape": each(targets, lambda a: a.shape[1:]),
        "input_type": each(inputs, lambda a: a.dtype.name),
        "target_type": each(targets, lambda a: a.dtype.name),
        "nbytes": sum(leaf.nbytes for _, leaf in leaves(data.tree, "")),
    }
