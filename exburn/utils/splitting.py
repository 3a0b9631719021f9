"""Data sets cut in two, and series cut into windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from exburn.core.checks import check_count, check_optional
from exburn.data import frame_array, is_frame
from exburn.errors import ArgumentError, DataError
from exburn.errors.boundary import api_boundary
from exburn.utils.stream import ElementForm, Stream, fresh_seed


@api_boundary
def split_dataset(
    dataset: Any,
    left_size: float | int | None = None,
    right_size: float | int | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    preferred_backend: str | None = None,
) -> tuple[Stream, Stream]:
    """Two data sets of the samples of one.

    Args:
        dataset: An array or table, a tuple or dict of those, of one length, a list of
            samples, or an iterable of batches such as `Stream` or a PyTorch data set.
        left_size: Samples (an integer) or fraction (a float) of the first part; what
            ``right_size`` leaves by default.
        right_size: The same for the second part.
        shuffle: Whether the samples are permuted before.
        seed: Of the permutation.
        preferred_backend: Kept for Keras code.

    Returns:
        Two streams of samples; ``.batch(32)`` makes batches for ``fit``.

    Raises:
        ArgumentError: The sizes are missing or do not fit.
        DataError: The data set is empty, or the arrays' lengths differ.

    Example:
        >>> left, right = split_dataset(np.arange(10), left_size=0.8)
        >>> len(left), [int(x) for x in right]
        (8, [8, 9])
    """
    samples = _samples(dataset)
    total = len(samples)
    if not total:
        raise DataError("split_dataset", "the data set is empty")
    left, right = _sizes(left_size, right_size, total)
    order = np.arange(total)
    if shuffle:
        start = fresh_seed() if seed is None else seed
        order = np.random.default_rng(start).permutation(total)

    form = None
    if isinstance(samples, _Rows):
        form = jax.tree.map(ElementForm.of, samples[0])

    def part(indices):
        return Stream(
            lambda epoch: (samples[i] for i in indices), len(indices), form=form
        )

    return part(order[:left]), part(order[total - right :])


class _Rows:
    """The samples of arrays that share their length."""

    def __init__(self, arrays: Any):
        leaves = jax.tree.leaves(arrays)
        lengths = {len(leaf) for leaf in leaves}
        if len(lengths) != 1:
            raise DataError(
                "split_dataset", f"the arrays' lengths differ: {sorted(lengths)}"
            )
        self.arrays, self.length = arrays, lengths.pop()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return jax.tree.map(lambda leaf: leaf[index], self.arrays)


def _samples(dataset: Any) -> Any:
    """Something with a length and samples by index."""
    if is_frame(dataset) or isinstance(dataset, list | tuple | dict):
        dataset = jax.tree.map(_array_of_frame, dataset)
    if isinstance(dataset, np.ndarray | jax.Array | dict):
        return _Rows(dataset)
    if isinstance(dataset, list | tuple):
        arrays = all(hasattr(v, "shape") and v.ndim for v in dataset)
        return _Rows(tuple(dataset)) if arrays and len(dataset) else dataset
    batched = getattr(dataset, "batch_size", None) is not None
    if isinstance(dataset, Stream):
        return list(dataset.unbatch() if batched else dataset)
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__") and not batched:
        return dataset  # a PyTorch data set, for example
    if not hasattr(dataset, "__iter__"):
        raise DataError(
            "split_dataset", f"{type(dataset).__name__} is no array and no data set"
        )
    return list(Stream(lambda epoch: dataset).unbatch() if batched else dataset)


def _array_of_frame(value: Any) -> Any:
    """The array of a frame: a Series would be indexed by its labels, not by rows."""
    return frame_array(value, op="split_dataset") if is_frame(value) else value


def _sizes(left: Any, right: Any, total: int) -> tuple[int, int]:
    if left is None and right is None:
        raise ArgumentError("split_dataset", "give left_size, right_size or both")
    counts = []
    for name, size in (("left_size", left), ("right_size", right)):
        if isinstance(size, bool) or not isinstance(size, int | float | None):
            raise ArgumentError("split_dataset", f"{name} is a number, not {size!r}")
        whole = isinstance(size, int)
        if size is not None and not 0 < size < (total if whole else 1):
            raise ArgumentError(
                "split_dataset",
                f"{name} is a fraction between 0 and 1, or fewer than {total} samples",
                {"received": size},
            )
        counts.append(size if whole or size is None else round(size * total))
    first, second = counts
    first = total - second if first is None else first
    second = total - first if second is None else second
    if first + second > total or first < 1 or second < 1:
        raise ArgumentError(
            "split_dataset",
            f"{first} and {second} samples do not fit a data set of {total}",
        )
    return first, second


@api_boundary
def timeseries_dataset_from_array(
    data: Any,
    targets: Any,
    sequence_length: int,
    sequence_stride: int = 1,
    sampling_rate: int = 1,
    batch_size: int | None = 128,
    shuffle: bool = False,
    seed: int | None = None,
    start_index: int | None = None,
    end_index: int | None = None,
    format: str = "numpy",
) -> Stream:
    """Windows of a series, in batches.

    Args:
        data: One row a time step.
        targets: The target of the window that begins at each row, or ``None``.
        sequence_length: Steps in a window.
        sequence_stride: Rows between the beginnings of windows.
        sampling_rate: Rows between the steps of a window.
        batch_size: Windows in a batch; ``None`` for single windows.
        shuffle: Whether every epoch has its own random order.
        seed: Of the order; a random one by default.
        start_index: Rows before it are not used.
        end_index: Rows from it on are not used.
        format: As of :func:`image_dataset_from_directory`.

    Returns:
        A stream of ``x`` or ``(x, y)`` that ``fit`` takes.

    Shape:
        data: [time, ...] → x: [batch, sequence_length, ...]

    Raises:
        ArgumentError: An argument is out of range.
        DataError: Not one window fits.

    Example:
        >>> series = np.arange(6)
        >>> x, y = next(iter(timeseries_dataset_from_array(series, series[3:], 3)))
        >>> x.tolist(), y.tolist()
        ([[0, 1, 2], [1, 2, 3], [2, 3, 4]], [3, 4, 5])
    """
    op = "timeseries_dataset_from_array"
    data, targets = (
        frame_array(value, op="timeseries_dataset_from_array", name=name)
        if is_frame(value)
        else value
        for value, name in ((data, "data"), (targets, "targets"))
    )
    data = np.asarray(data)
    targets = None if targets is None else np.asarray(targets)
    start = 0 if start_index is None else start_index
    end = len(data) if end_index is None else end_index
    sequence_length = check_count(op, "sequence_length", sequence_length)
    sequence_stride = check_count(op, "sequence_stride", sequence_stride)
    sampling_rate = check_count(op, "sampling_rate", sampling_rate)
    batch_size = check_optional(check_count, op, "batch_size", batch_size)
    if not 0 <= start < end <= len(data):
        raise ArgumentError(
            op,
            f"0 <= start_index < end_index <= {len(data)}, the length of the data",
            {"start_index": start, "end_index": end},
        )
    count = end - start - (sequence_length - 1) * sampling_rate
    if targets is not None:
        count = min(count, len(targets) - start)
    if count < 1:
        raise DataError(
            op,
            f"no window of {sequence_length} steps fits into {end - start} rows",
            {
                "sampling_rate": sampling_rate,
                "targets": "none" if targets is None else len(targets),
            },
        )
    begins = start + np.arange(0, count, sequence_stride)
    steps = np.arange(sequence_length) * sampling_rate
    entropy = fresh_seed() if seed is None else seed

    def make(epoch: int) -> Iterator:
        order = begins
        if shuffle:
            order = np.random.default_rng((entropy, epoch)).permutation(begins)
        size = 1 if batch_size is None else batch_size
        for at in range(0, len(order), size):
            first = order[at : at + size]
            if batch_size is None:
                first = first[0]
            x = data[np.add.outer(first, steps)]
            yield x if targets is None else (x, targets[first])

    length = -(-len(begins) // (batch_size or 1))
    form: Any = ElementForm((sequence_length, *data.shape[1:]), data.dtype)
    if targets is not None:
        form = form, ElementForm(targets.shape[1:], targets.dtype)
    return Stream(
        make,
        length,
        batch_size=batch_size,
        name="time series",
        format=format,
        form=form if batch_size is None else jax.tree.map(ElementForm.batch, form),
    )
