"""Hugging Face ``datasets`` with a NumPy, JAX or PyTorch format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from exburn.data import (
    ArrayDataset,
    ReadOptions,
    StreamDataset,
    as_dataset,
    register_adapter,
)
from exburn.errors import ArgumentError, DTypeError, unknown_name
from exburn.errors.boundary import api_boundary


def _base(value: Any) -> str | None:
    """The kind of a Hugging Face dataset, or None for anything else."""
    for c in type(value).__mro__:
        ours = c.__name__ in ("Dataset", "IterableDataset")
        if ours and c.__module__.split(".")[0] == "datasets":
            return c.__name__
    return None


@register_adapter
class ColumnAdapter:
    """One column, ``ds["label"]``, as an array; it need not have a format."""

    def accepts(self, value: Any) -> bool:
        cls = type(value)
        return cls.__name__ == "Column" and cls.__module__.startswith("datasets.")

    def to_array(self, value: Any, *, name: str, op: str) -> Any:
        rows = value[:]
        if not isinstance(rows, list):
            return rows
        try:
            return np.asarray(rows)
        except ValueError:  # ragged: the check of dtypes says so
            return np.array(rows, dtype=object)


@register_adapter
class HuggingFaceAdapter:
    """A dataset with a format set: x is a dict of all its columns.

    Which column is the target cannot be told from the dataset: use `from_huggingface`.
    """

    def accepts(self, value: Any) -> bool:
        return _base(value) is not None

    def load(self, value: Any) -> ArrayDataset | StreamDataset:
        if _base(value) == "IterableDataset":
            return _stream(value, 32, lambda row: row)
        if value.format["type"] not in ("numpy", "jax", "torch"):
            raise DTypeError(
                "data",
                "a Hugging Face dataset needs a format of arrays",
                {"format": value.format["type"], "columns": value.column_names},
                hint="exburn.datasets.from_huggingface(ds, inputs=…, targets=…), or "
                "ds.with_format('numpy').",
            )
        return ArrayDataset(dict(value[:]))


@api_boundary
def from_huggingface(
    dataset: Any,
    inputs: str | Sequence[str],
    targets: str | Sequence[str] | None = None,
    *,
    sample_weight: str | None = None,
    batch_size: int = 32,
) -> ArrayDataset | StreamDataset:
    """Picks inputs and targets of a Hugging Face dataset by column name.

    A ``Dataset`` is read whole (its columns as arrays); an ``IterableDataset`` is
    streamed in batches and is told the epoch, so that its own ``shuffle`` works.

    Args:
        dataset: ``datasets.Dataset`` or ``datasets.IterableDataset``; any format.
        inputs: A column, or several: x is then a dict by column name.
        targets: The same for y.
        sample_weight: A column of weights.
        batch_size: Rows a batch of a stream; a ``Dataset`` is batched by ``fit``.

    Raises:
        DTypeError: Not a Hugging Face dataset, or columns that are not numeric.
        UnknownNameError: A column that does not exist.
        ArgumentError: ``batch_size`` below 1.

    Example:
        >>> import datasets  # doctest: +SKIP
        >>> rows = {"x": [[1.0], [2.0]], "label": [0, 1]}
        >>> rows = datasets.Dataset.from_dict(rows)  # doctest: +SKIP
        >>> from_huggingface(rows, "x", "label").size  # doctest: +SKIP
        2
    """
    op = "from_huggingface"
    kind = _base(dataset)
    if kind is None:
        raise DTypeError(
            op,
            "expected a datasets.Dataset or IterableDataset",
            {"received": type(dataset).__name__},
            hint="Of a DatasetDict pass one split: ds['train'].",
        )
    if batch_size < 1:
        raise ArgumentError(op, "batch_size must be at least 1", {"got": batch_size})
    parts = [
        [c] if isinstance(c, str) else list(c or ())
        for c in (inputs, targets, sample_weight)
    ]
    columns = list(dict.fromkeys(c for part in parts for c in part))
    for column in columns:
        if dataset.column_names is not None and column not in dataset.column_names:
            raise unknown_name("column", column, dataset.column_names, op=op)

    def arrange(rows: Any) -> tuple:
        return tuple(
            rows[choice] if isinstance(choice, str) else
            {c: rows[c] for c in choice} if choice else None
            for choice in (inputs, targets, sample_weight)
        )  # fmt: skip

    chosen = dataset.select_columns(columns).with_format("numpy")
    if kind == "IterableDataset":
        return _stream(chosen, batch_size, arrange)
    row = () if isinstance(inputs, str) else None
    return as_dataset(
        *arrange(chosen[:]), op=op, options=ReadOptions(ragged=True, row=row)
    )


def _stream(dataset: Any, batch_size: int, arrange: Any) -> StreamDataset:
    def start(epoch: int) -> Iterator:
        dataset.set_epoch(epoch)
        return map(arrange, dataset.iter(batch_size=batch_size))

    return StreamDataset(start, batch_size=batch_size, name="IterableDataset")
