"""Labels, sequences and batches as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from exburn import ops
from exburn.datasets.prepare import one_hot
from exburn.errors import ArgumentError, DataError, ShapeError
from exburn.errors.boundary import api_boundary


@api_boundary
def to_categorical(x: Any, num_classes: int | None = None) -> Any:
    """Integer classes as one-hot vectors.

    Args:
        x: Integers from 0; a last axis of size 1 is dropped.
        num_classes: Length of the vectors; the largest class + 1 by default.

    Shape:
        x: [...] or [..., 1] → [..., num_classes], float32

    Raises:
        DTypeError: Classes that are not whole numbers.
        DataError: A class below 0 or not below ``num_classes``.

    Example:
        >>> to_categorical([0, 2]).tolist()
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    if isinstance(x, Tracer):
        if num_classes is None:
            raise ArgumentError(
                "to_categorical", "num_classes must be given inside compiled code"
            )
        return ops.one_hot(x, num_classes)
    labels = np.asarray(x)
    if labels.ndim > 1 and labels.shape[-1] == 1:
        labels = labels[..., 0]
    rows = one_hot(labels, num_classes)
    return jax.device_put(rows) if isinstance(x, jax.Array) else rows


@api_boundary
def normalize(x: Any, axis: int = -1, order: int = 2) -> Any:
    """``x`` divided by its norm along an axis; vectors of zeros stay as they are.

    Args:
        x: An array.
        axis: Axis of the vectors.
        order: Of the norm.

    Example:
        >>> normalize(np.array([[0.0, 2.0], [0.0, 0.0]])).tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """
    if isinstance(x, jax.Array):
        return ops.normalize(x, axis, order)
    values = np.atleast_1d(np.asarray(x))
    norm = np.atleast_1d(np.linalg.norm(values, order, axis))
    norm[norm == 0] = 1
    return values / np.expand_dims(norm, axis)


@api_boundary
def pad_sequences(
    sequences: Sequence[Any],
    maxlen: int | None = None,
    dtype: Any = "int32",
    padding: str = "pre",
    truncating: str = "pre",
    value: Any = 0.0,
) -> np.ndarray:
    """Sequences of unequal length as one array.

    Args:
        sequences: Lists or arrays.
        maxlen: Length of the result; that of the longest by default.
        dtype: Dtype of the result; ``object`` for strings.
        padding: Whether ``value`` is put before (``"pre"``) or after (``"post"``).
        truncating: Whether longer ones lose their beginning or their end.
        value: What fills up.

    Shape:
        n sequences of ``[time, ...]`` → [n, maxlen, ...]

    Raises:
        ArgumentError: ``padding`` or ``truncating`` is neither, or ``value`` is a
            string and ``dtype`` cannot hold it.
        DataError: An entry is no sequence.
        ShapeError: The shapes of the steps differ.

    Example:
        >>> pad_sequences([[1], [2, 3, 4]], maxlen=2).tolist()
        [[0, 1], [3, 4]]
    """
    for name, choice in (("padding", padding), ("truncating", truncating)):
        if choice not in ("pre", "post"):
            raise ArgumentError(
                "pad_sequences", f"{name} is 'pre' or 'post', received {choice!r}"
            )
    kind = np.dtype(dtype)
    if isinstance(value, str) and kind.kind not in "OUS":
        raise ArgumentError(
            "pad_sequences",
            f"{kind} cannot hold {value!r}",
            hint="Pass dtype=object.",
        )
    if not hasattr(sequences, "__len__"):
        raise DataError("pad_sequences", "sequences must be a list of sequences")
    rows = []
    for i, row in enumerate(sequences):
        if not hasattr(row, "__len__") or isinstance(row, str):
            raise DataError("pad_sequences", f"entry {i} is no sequence: {row!r}")
        rows.append(np.asarray(row, dtype=kind if len(row) else None))
    step = next((row.shape[1:] for row in rows if len(row)), ())
    length = max(map(len, rows), default=0) if maxlen is None else maxlen
    out = np.full((len(rows), length, *step), value, dtype=kind)
    for i, row in enumerate(rows):
        if not len(row) or not length:
            continue
        if row.shape[1:] != step:
            raise ShapeError(
                "pad_sequences",
                f"the steps of sequence {i} have shape {row.shape[1:]}, not {step}",
            )
        row = row[-length:] if truncating == "pre" else row[:length]
        if padding == "pre":
            out[i, length - len(row) :] = row
        else:
            out[i, : len(row)] = row
    return out
