"""Generators that group the elements of a stream anew, as methods of ``tf.data`` do."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from exburn.errors import ArgumentError, DTypeError, ShapeError
from exburn.errors.boundary import api_boundary


@api_boundary
def elements_of(op: str, dataset: Any, epoch: int = 0) -> Iterator[Any]:
    """The elements of a stream, a dataset of another library, or an iterable.

    Args:
        op: The operation named in the error.
        dataset: The data.
        epoch: Of a stream: which loop this is.

    Raises:
        DTypeError: It has no elements.
    """
    if hasattr(dataset, "_make"):
        return iter(dataset._make(epoch))
    if hasattr(dataset, "as_numpy_iterator"):
        return iter(dataset.as_numpy_iterator())
    if not isinstance(dataset, Iterable) or isinstance(dataset, str | Mapping):
        raise DTypeError(
            op,
            "a stream, a dataset or an iterable of elements is needed, received "
            f"{type(dataset).__name__}",
        )
    return iter(dataset)


@api_boundary
def stack(rows: Sequence[Any]) -> Any:
    """Samples of equal structure as one batch."""
    return jax.tree.map(
        lambda *leaves: np.stack([np.asarray(v) for v in leaves]), *rows
    )


@api_boundary
def rebatch(
    batches: Iterable, sizes: Sequence[int], drop_remainder: bool
) -> Iterator[Any]:
    """The rows of batches in batches of other sizes, which are taken in turns."""
    turns = itertools.cycle(sizes)
    size, count, parts = next(turns), 0, []
    for batch in batches:
        rows, start = _rows(batch), 0
        while rows - start >= size - count:
            parts.append(_slice(batch, start, start + size - count))
            yield _join(parts)
            start += size - count
            size, count, parts = next(turns), 0, []
        if start < rows:
            parts.append(_slice(batch, start, rows))
            count += rows - start
    if parts and not drop_remainder:
        yield _join(parts)


def _rows(batch: Any) -> int:
    sizes = {len(np.atleast_1d(leaf)) for leaf in jax.tree.leaves(batch)}
    if len(sizes) != 1:
        raise ShapeError(
            "rebatch", f"the parts of a batch have {sorted(sizes)} rows, not as many"
        )
    return sizes.pop()


def _slice(batch: Any, start: int, stop: int) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[start:stop], batch)


def _join(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


@api_boundary
def windows(
    elements: Iterable, size: int, shift: int, stride: int, drop_remainder: bool
) -> Iterator[list[Any]]:
    """Lists of ``size`` elements, ``stride`` apart, that begin ``shift`` apart."""
    source, buffer = iter(elements), []
    span = (size - 1) * stride + 1
    while True:
        buffer += itertools.islice(source, max(0, span - len(buffer)))
        if not buffer:
            return
        window = buffer[:span:stride]
        if len(window) == size or not drop_remainder:
            yield window
        missing = shift - len(buffer)
        del buffer[:shift]
        if missing > 0:  # elements between two windows
            next(itertools.islice(source, missing - 1, missing), None)


@api_boundary
def interleave(
    elements: Iterable, open_one: Callable[[Any], Iterator], cycle: int, block: int
) -> Iterator[Any]:
    """Elements of the streams that ``open_one`` makes, ``block`` of each in turns.

    Args:
        elements: What streams are made of.
        open_one: Makes one.
        cycle: How many are open at once.
        block: How many elements of one follow each other.
    """
    source = iter(elements)
    running: list[Iterator | None] = [None] * cycle
    ended = False
    while not ended or any(stream is not None for stream in running):
        for place in range(cycle):
            if running[place] is None and not ended:
                element = next(source, _END)
                ended = element is _END
                running[place] = None if ended else open_one(element)
            stream = running[place]
            if stream is None:
                continue
            part = list(itertools.islice(stream, block))
            yield from part
            if len(part) < block:
                running[place] = None


_END = object()


@api_boundary
def pad_rows(rows: list[Any], shapes: Any, values: Any) -> Any:
    """Samples of several lengths as one batch, with values behind the shorter ones.

    Args:
        rows: The samples, of equal structure.
        shapes: A shape for each part, of the samples' structure: ``None`` or -1 is the
            largest size in the batch. ``None`` for all.
        values: What is filled in, for all parts or for each; zeros, or empty strings,
            if None.

    Raises:
        ShapeError: A sample is larger than its shape, or has another rank.
        ArgumentError: ``shapes`` or ``values`` have another structure.
    """
    first = rows[0]
    if isinstance(first, Mapping):
        return {
            key: pad_rows([r[key] for r in rows], *_parts(first, shapes, values, key))
            for key in first
        }
    if isinstance(first, tuple | list):
        return type(first)(
            pad_rows([r[i] for r in rows], *_parts(first, shapes, values, i))
            for i in range(len(first))
        )
    return _pad([np.asarray(row) for row in rows], shapes, values)


def _parts(structure: Any, shapes: Any, values: Any, key: Any) -> tuple[Any, Any]:
    """The shape and the value of one part of samples."""
    parts = []
    for name, part in (("padded_shapes", shapes), ("padding_values", values)):
        single = name == "padding_values" and np.ndim(part) == 0
        if part is None or (single and not isinstance(part, Mapping | tuple | list)):
            parts.append(part)
            continue
        try:
            if len(part) != len(structure):
                raise KeyError
            parts.append(part[key])
        except (KeyError, IndexError, TypeError) as error:
            raise ArgumentError(
                "padded_batch",
                f"{name} must have a part for each part of the samples",
                {"parts": len(structure), "received": part},
            ) from error
    return parts[0], parts[1]


def _pad(rows: list[np.ndarray], shape: Any, value: Any) -> np.ndarray:
    rank = rows[0].ndim
    sizes = [None] * rank if shape is None else [_size(d) for d in shape]
    if len(sizes) != rank or any(row.ndim != rank for row in rows):
        raise ShapeError(
            "padded_batch",
            "samples and padded_shapes must have one rank",
            {"padded_shapes": shape, "samples": [row.shape for row in rows]},
        )
    largest = np.max([row.shape for row in rows], axis=0, initial=0)
    sizes = [int(m) if d is None else d for d, m in zip(sizes, largest, strict=True)]
    if any(m > d for m, d in zip(largest, sizes, strict=True)):
        raise ShapeError(
            "padded_batch",
            "a sample is larger than padded_shapes",
            {"padded_shapes": tuple(sizes), "largest": tuple(map(int, largest))},
        )
    dtype = np.result_type(*rows)
    if value is None:
        value = "" if dtype.kind in "US" else 0
    batch = np.full((len(rows), *sizes), value, dtype)
    for i, row in enumerate(rows):
        batch[(i, *map(slice, row.shape))] = row
    return batch


def _size(value: Any) -> int | None:
    """A size, ``None`` if it is open."""
    value = getattr(value, "value", value)  # of a dimension of TensorFlow
    return None if value is None or int(value) == -1 else int(value)
