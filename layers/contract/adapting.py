"""What ``adapt`` reads: arrays, datasets, loaders, or batches one after another."""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

from exburn.data import (
    ArrayDataset,
    PyDataset,
    StreamDataset,
    frame_array,
    is_frame,
)
from exburn.errors import DataError, DTypeError


def batches(op: str, data: Any, steps: int | None = None) -> Iterator[Any]:
    """The parts of the data, each an array or nested lists, one after another.

    Of batches that are tuples ``(x, y, …)`` the first entry is taken.

    Args:
        op: The operation named in errors.
        data: An array, a table or a column of one, nested lists of values, a list of
            arrays, a dataset, or any iterable of batches.
        steps: How many batches are read; all by default.

    Raises:
        DataError: There is no batch, or a batch is a dictionary.
        DTypeError: The data is none of these.

    Example:
        >>> import numpy as np
        >>> [len(batch) for batch in batches("adapt", [np.ones(2), np.ones(3)])]
        [2, 3]
    """
    empty = True
    for batch in itertools.islice(parts(op, data), steps):
        if isinstance(batch, tuple) and batch and hasattr(batch[0], "__len__"):
            if not isinstance(batch[0], str | bytes):
                batch = batch[0]
        batch = frame_array(batch, op=op, name="data") if is_frame(batch) else batch
        if isinstance(batch, Mapping):
            raise DataError(
                op,
                "one feature is needed, but a batch is a dictionary",
                {"keys": ", ".join(map(str, batch))},
                hint="Pass one entry: layer.adapt(batch[key] for batch in loader).",
            )
        empty = False
        yield batch
    if empty:
        raise DataError(op, "the data is empty", {"received": reprlib.repr(data)})


def parts(op: str, data: Any) -> Iterator[Any]:
    """The batches of the data as they are, tuples and dictionaries included.

    Raises:
        DTypeError: The data is nothing that has batches.
    """
    if isinstance(data, ArrayDataset):
        return iter([data.tree[0]])
    # What can be looped over, as by Keras' directory readers, may hold strings.
    if isinstance(data, StreamDataset):
        loop: Any = getattr(data, "__iter__", None)
        return loop() if loop else (batch[0] for batch in data.iterate())
    if isinstance(data, PyDataset):
        number = data.num_batches
        places = itertools.count() if number is None else range(number)
        return (data[i] for i in places)
    if isinstance(data, Mapping) or is_frame(data) or hasattr(data, "shape"):
        return iter([data])
    if isinstance(data, list | tuple):
        firsts = [v[0] if isinstance(v, tuple) and v else v for v in data]
        arrays = bool(data) and all(getattr(v, "ndim", 0) for v in firsts)
        return iter(data if arrays or not data else [list(data)])
    if isinstance(data, str | bytes) or not hasattr(data, "__iter__"):
        if hasattr(data, "__array__"):
            return iter([data])
        raise DTypeError(
            op,
            f"data is an array or an iterable of batches, not {type(data).__name__}",
            {"received": reprlib.repr(data)},
        )
    return iter(data)
