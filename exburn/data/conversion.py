"""From what the user passed to ``fit`` to a data set."""

from __future__ import annotations

import inspect
import math
import os
import reprlib
import types
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from exburn.data.adapting import ADAPTERS
from exburn.data.array_dataset import ArrayDataset
from exburn.data.checks import prepare
from exburn.data.frames import ReadOptions, is_frame
from exburn.data.packed import PackedTokens
from exburn.data.ragged import is_ragged, is_ragged_tensor
from exburn.data.ragged_dataset import RaggedDataset
from exburn.data.stream_dataset import StreamDataset
from exburn.data.trees import NAMES, in_order, leaves
from exburn.errors import ArgumentError, DataError, DTypeError

_TAKE_RAGGED = {
    *("fit", "evaluate", "predict", "from_huggingface"),
    *("train_on_batch", "test_on_batch", "predict_on_batch"),
}


def as_dataset(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    op: str = "fit",
    options: ReadOptions | None = None,
) -> ArrayDataset | StreamDataset:
    """Turns what the user passed to ``fit`` into a dataset, or explains why not.

    Args:
        x: Arrays (nested), a data frame, a loader of batches, or a dataset.
        y: Targets; only beside arrays.
        sample_weight: Weights; only beside arrays.
        options: What the model takes, if it is known.

    Raises:
        ArgumentError: ``y`` or ``sample_weight`` beside a loader.
        DataError: Empty data, unequal lengths …
        DTypeError: Something that is neither data nor a known loader.

    Example:
        >>> as_dataset(np.zeros((4, 2)), np.zeros(4)).size
        4
    """
    arrays_of = np.ndarray | jax.Array | Mapping | list | tuple | PackedTokens
    plain = isinstance(x, arrays_of)
    dataset, arrays = None, plain or x is None or is_ragged_tensor(x)
    if isinstance(x, ArrayDataset | StreamDataset):
        dataset = x
    elif not arrays:
        adapter = next((a for a in ADAPTERS if a.accepts(x)), None)
        # The one for iterables is asked last, and a table may be one.
        adapter = None if is_frame(x) and not hasattr(adapter, "to_array") else adapter
        arrays = hasattr(adapter, "to_array") or is_frame(x) or hasattr(x, "__array__")
        if adapter is not None and not hasattr(adapter, "to_array"):
            dataset = adapter.load(x)
    if dataset is not None:
        extra = [n for n, v in zip(NAMES[1:], (y, sample_weight), strict=True)
                 if v is not None]  # fmt: skip
        if extra:
            raise ArgumentError(
                op,
                f"{' and '.join(extra)} must not be given beside a loader: "
                "its batches hold the targets",
                {"x": type(x).__name__},
                hint="Let the loader yield (x, y) or (x, y, sample_weight).",
            )
        if isinstance(dataset, RaggedDataset):
            _check_takes_ragged(op)
            return RaggedDataset(dataset.tree, _widths(dataset.tree[0], options), op)
        if isinstance(dataset, StreamDataset):
            dataset.op, dataset.options = op, options or ReadOptions()
            dataset.first_epoch = dataset.earlier = 0
        return dataset
    if not arrays:
        hint = "Pass np.array(...), or teach ExBurn your type: register_adapter."
        if isinstance(x, str | os.PathLike):
            hint = "Read the file first: np.load(path), pandas.read_csv(path)."
        elif inspect.isgeneratorfunction(x):
            hint = f"Call it: {x.__name__}()."
        raise DTypeError(
            op,
            f"x must be arrays, a data frame or a loader, not {type(x).__name__}",
            {"received": reprlib.repr(x)},
            hint=hint,
        )
    if isinstance(y, types.GeneratorType):
        raise ArgumentError(
            op, "y is a generator, x is not", hint="Yield (x, y) from one generator."
        )
    tree = prepare(x, y, sample_weight, op, options=options)
    if not any(is_ragged(leaf) for _, leaf in leaves(tree, "")):
        return ArrayDataset.of(tree)
    _check_takes_ragged(op)
    return RaggedDataset(tree, _widths(tree[0], options), op)


def _widths(x: Any, options: ReadOptions | None) -> list[int | None]:
    """The width of each ragged input that the model fixes, or ``None``."""
    specs = None if options is None else options.inputs
    named = {} if specs is None else dict(specs)
    parts = in_order(x, list(named))
    if not isinstance(parts, list | tuple):
        parts = [parts]
    shapes = [spec.shape for spec in named.values()]
    if len(parts) != len(shapes):
        shapes = [()] * len(parts)
    widths = []
    for part, shape in zip(parts, shapes, strict=True):
        width = shape[1] if len(shape) > 1 and isinstance(shape[1], int) else None
        widths += [width for _, leaf in leaves(part, "x") if is_ragged(leaf)]
    return widths


def as_batch(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    op: str,
    options: ReadOptions | None = None,
) -> ArrayDataset:
    """One batch of arrays: what ``as_dataset`` takes, but for loaders.

    Raises:
        DataError: A loader, or what ``as_dataset`` refuses.

    Example:
        >>> as_batch(np.zeros((4, 2)), op="predict_on_batch").size
        4
    """
    dataset = as_dataset(x, y, sample_weight, op=op, options=options)
    if not isinstance(dataset, ArrayDataset):
        raise DataError(
            op,
            "one batch of arrays is needed, received a loader",
            hint="Pass one of its batches: next(iter(loader)).",
        )
    return dataset


def as_validation_dataset(
    data: Any, *, op: str = "fit", options: ReadOptions | None = None
) -> ArrayDataset | StreamDataset:
    """``validation_data`` as a dataset: ``(x, y[, weight])``, ``(x,)`` or a loader.

    Raises:
        ArgumentError: A tuple that is not of one to three parts.

    Example:
        >>> as_validation_dataset((np.zeros((3, 2)), np.zeros(3))).size
        3
    """
    if not isinstance(data, list | tuple):
        return as_dataset(data, op=op, options=options)
    if len(data) not in (1, 2, 3):
        raise ArgumentError(
            op,
            "validation_data must be (x, y), (x, y, sample_weight) or a loader",
            {"received": f"{type(data).__name__} of {len(data)} parts"},
        )
    return as_dataset(*data, op=op, options=options)


def _check_takes_ragged(op: str) -> None:
    """Raises for an operation that takes no rows of unlike lengths."""
    if op.removesuffix(" (validation data)") not in _TAKE_RAGGED:
        raise DataError(
            op,
            "rows of unlike lengths are taken by fit, evaluate and predict alone",
            hint="Fill them up: exburn.utils.pad_sequences(rows, padding='post').",
        )


def with_targets_like(
    dataset: ArrayDataset | StreamDataset,
    targets: Any,
    names: Sequence[str] | None = None,
) -> ArrayDataset | StreamDataset:
    """The data with targets of other targets' rank, where only an axis of one differs.

    ``[n]`` and ``[n, 1]`` mean the same. As one of the two, they meet the same code of
    the user's, and the same programs.

    Args:
        dataset: The data. A stream is not to be used otherwise from then on.
        targets: Arrays or specs, with the axis of the rows.
        names: Of the targets, in the order that a list of them has.
    """
    forms = [leaf.shape for leaf in jax.tree.leaves(in_order(targets, names))]

    def alike(batch: tuple) -> tuple:
        x, y, weight = batch
        leaves, structure = jax.tree.flatten(ordered := in_order(y, names))
        if len(leaves) != len(forms):
            return batch
        leaves = [_of_form(v, form) for v, form in zip(leaves, forms, strict=True)]
        targets = structure.unflatten(leaves)
        if ordered is not y:
            targets = {**y, **dict(zip(names or (), targets, strict=True))}
        return x, targets, weight

    before = dataset.tree if isinstance(dataset, ArrayDataset) else dataset.peek()
    now = alike(before)
    if jax.tree.map(np.shape, now[1]) == jax.tree.map(np.shape, before[1]):
        return dataset
    if isinstance(dataset, ArrayDataset):
        return dataset.like(now)
    return dataset.map_batches(alike)


def _of_form(array: Any, form: tuple) -> Any:
    shape = array.shape
    if form[len(shape) :] == (1,):
        return array.reshape(*shape, 1)
    return array.reshape(shape[:-1]) if shape[len(form) :] == (1,) else array


def split(
    dataset: ArrayDataset | StreamDataset, validation_split: float, *, op: str = "fit"
) -> tuple[ArrayDataset, ArrayDataset]:
    """Splits off the last fraction of the rows, before any shuffling, as Keras does.

    Args:
        dataset: An `ArrayDataset`; a stream cannot be split.
        validation_split: Fraction between 0 and 1, both excluded.
        op: The operation named in errors.

    Raises:
        ArgumentError: A fraction outside (0, 1), or a stream.
        DataError: If one of the parts would be empty.

    Example:
        >>> train, validation = split(ArrayDataset(np.arange(10.0)), 0.2)
        >>> train.size, validation.tree[0].tolist()
        (8, [8.0, 9.0])
    """
    number = isinstance(validation_split, int | float | np.number)
    if not number or not 0 < validation_split < 1:
        raise ArgumentError(
            op,
            "validation_split must be a fraction between 0 and 1, both excluded, "
            f"received {validation_split!r}",
            hint="0.2 takes the last fifth of the rows.",
        )
    if not isinstance(dataset, ArrayDataset):
        raise ArgumentError(
            op,
            "validation_split needs arrays: a loader cannot be split",
            {"x": dataset.name},
            hint="Pass validation_data=another_loader.",
        )
    at = math.floor(dataset.size * (1 - validation_split))
    if not 0 < at < dataset.size:
        raise DataError(
            op,
            f"validation_split={validation_split} of {dataset.size} rows leaves "
            f"{at} for training and {dataset.size - at} for validation",
            hint="Each part needs at least one row: pass validation_data instead.",
        )
    return dataset.rows(0, at), dataset.rows(at, dataset.size)
