"""What must hold of data before anything is compiled for them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax.numpy as jnp
import numpy as np

from exburn.data.adapting import has_adapter
from exburn.data.arrays import as_array, describe, on_host
from exburn.data.frames import (
    Faults,
    ReadOptions,
    divide_frame,
    is_frame,
    read_frame,
)
from exburn.data.ragged import RaggedArray, is_ragged, read_ragged, stack_targets
from exburn.data.trees import NAMES, Tree, as_values, leaves, map_leaves
from exburn.errors import DataError, ExBurnError, ShapeError

_PART = 4 << 20  # bytes that are worth a thread's while
_MOST_THREADS = 8


def _check_lengths(tree: tuple, op: str, what: str = "data") -> int:
    """All arrays share one leading length > 0; returns it."""
    first = None
    for part, name in zip(tree, NAMES, strict=True):
        for path, array in leaves(part, name):
            if first is None:
                first = (path, array)
            elif array.shape[0] != first[1].shape[0]:
                raise DataError(
                    op,
                    f"{first[0]} and {path} must have the same number of rows",
                    {
                        first[0]: f"{first[1].shape[0]} rows, {describe(first[1])}",
                        path: f"{array.shape[0]} rows, {describe(array)}",
                    },
                    hint=_of_lengths(tree, (first[1].shape[0], array.shape[0]), what),
                )
    if first is None:
        raise DataError(
            op, f"the {what} holds no arrays", hint="Pass x, or a loader of batches."
        )
    if not first[1].shape[0]:
        raise DataError(
            op,
            f"the {what} is empty",
            {first[0]: describe(first[1])},
            hint="Look at what selected the rows: nothing is left of them.",
        )
    return first[1].shape[0]


def _of_lengths(tree: tuple, lengths: tuple[int, int], what: str) -> str:
    hint = "The first axis counts the samples in every array"
    for part, name in zip(tree, NAMES, strict=True):
        if isinstance(part, list | tuple) and len(part) in lengths:
            return f"{hint}: of a list of rows make one, np.stack({name})."
    return f"{hint}." if what == "data" else f"{hint}; a loader has to batch its rows."


def _plain_weight(weight: Any) -> Any:
    """Numbers of one dtype, as programs are compiled for it; no axes of one."""
    if is_ragged(weight):
        return RaggedArray(_plain_weight(weight.entries), weight.lengths)
    while weight.ndim > 1 and weight.shape[-1] == 1:
        weight = weight[..., 0]
    return weight if weight.dtype == np.float32 else weight.astype(np.float32)


def _check_weights(weight: Tree, y: Tree, op: str) -> None:
    one = None if isinstance(y, Mapping | list | tuple) else y
    for path, w in leaves(weight, NAMES[2]):
        if one is not None:
            fits = all(a in (1, b) for a, b in zip(w.shape, one.shape, strict=False))
            if w.ndim > one.ndim or not fits:
                raise ShapeError(
                    op,
                    f"{path} must be one weight a row, or have the shape of y",
                    {path: describe(w), "y": describe(one)},
                    hint="Weigh each row by one number: sample_weight of shape (n,).",
                )
        w = w.entries if is_ragged(w) else w
        host = w if (array := on_host(w)) is None else array
        if not host.min() >= 0 or not np.isfinite(float(host.max())):
            bad = ~(host >= 0) | (host == np.inf)
            at = np.unravel_index(int(bad.argmax()), w.shape)
            raise DataError(
                op,
                f"{path} must be finite and not negative",
                {path: describe(w), "first bad value": f"{host[at]} at row {at[0]}"},
                hint="A weight of 0 leaves a row out.",
            )


def check_finite(
    tree: tuple, names: tuple[str, ...] = NAMES, *, op: str = "fit"
) -> None:
    """Raises if a float array of the tree holds NaN or infinity.

    A sum is cheap and is not finite if any value is not; only then the exact place is
    looked for. Arrays on an accelerator are summed there.

    Args:
        tree: ``(x, y, sample_weight)`` or any tuple of trees.
        names: One name per entry of the tuple, for the message.
        op: The operation named in the error.

    Raises:
        DataError: Naming the argument, the value, its row and its position.

    Example:
        >>> check_finite((np.ones(3, np.float32),), ("x",))
    """
    for part, name in zip(tree, names, strict=False):
        for path, array in leaves(part, name):
            if not array.size or not jnp.issubdtype(array.dtype, jnp.floating):
                continue
            host = on_host(array)
            if np.isfinite(float(jnp.sum(array)) if host is None else _sum(host)):
                continue
            bad = ~(jnp.isfinite(array) if host is None else np.isfinite(host))
            if not bad.any():  # the sum overflowed, the values are fine
                continue
            at = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), array.shape))
            value = (array if host is None else host)[at]
            rows = bad.reshape(len(array), -1).any(1).sum()
            raise DataError(
                op,
                f"{path} must be finite, but holds NaN or infinity",
                {
                    "received": describe(array),
                    "first bad value": f"{value} at row {at[0]}, position {at}",
                    "rows affected": f"{int(rows)} of {len(array)}",
                },
                hint="Drop or fill these rows (np.nan_to_num); values beyond 3.4e38 "
                "do not fit float32.",
            )


def _sum(array: np.ndarray) -> float:
    """The sum of an array; of a large one by several threads.

    One core reads 8 GB/s, an H200 is sent 11: ``evaluate`` waited for this.
    """

    def part(rows: np.ndarray) -> float:
        with np.errstate(all="ignore"):  # holds in one thread only
            return float(rows.sum())

    threads = min(os.cpu_count() or 1, _MOST_THREADS, array.nbytes // _PART)
    if threads < 2:
        return part(array)
    with ThreadPoolExecutor(threads, "exburn-check") as pool:
        return sum(pool.map(part, np.array_split(array, threads)))


def prepare(
    x: Tree,
    y: Tree,
    weight: Tree,
    op: str,
    what: str = "data",
    options: ReadOptions | None = None,
) -> tuple:
    """The three trees with their leaves as arrays that fit each other."""
    options = options or ReadOptions()
    parts = zip((x, y, weight), NAMES, strict=True)
    x, y, weight = (_arrange(part, name, options, op) for part, name in parts)
    if options.ragged and not options.raw:
        x, y, weight = _read_ragged((x, y, weight), options, op)
    inputs = list(leaves(x, "x", nones=True))
    if inputs and all(leaf is None for _, leaf in inputs):  # the model may take some
        raise DataError(
            op,
            f"the {what} lacks inputs: {inputs[0][0]} is None",
            hint="Pass arrays as x, or a loader of batches.",
        )

    faults, texts = Faults(op), options.texts(x)

    def convert(name: str, leaf: Any) -> Any:
        if is_ragged(leaf):
            return leaf
        raw = options.raw and name.startswith(NAMES[0])
        if is_frame(leaf) and not has_adapter(leaf):
            text = texts.get(name) if raw else False
            leaf = read_frame(leaf, name, options, faults, text)
            if leaf is None:  # of the columns that are at fault all are looked for
                return None
        return as_array(leaf, name, op, raw=raw)

    parts = zip((x, y, weight), NAMES, strict=True)
    x, y, weight = (map_leaves(convert, part, name) for part, name in parts)
    faults.raise_them()
    # One weight a row may come as a column, such as a pandas Series.
    tree = x, y, map_leaves(lambda _, w: _plain_weight(w), weight, NAMES[2])
    _check_lengths(tree, op, what)
    _check_weights(tree[2], tree[1], op)
    return tree


def _read_ragged(parts: tuple, options: ReadOptions, op: str) -> tuple:
    """The three trees, with arrays for lists of rows of unlike lengths."""
    x, y, weight = parts
    x = read_ragged(x, "x", options, op)
    ragged = [leaf for _, leaf in leaves(x, "x") if is_ragged(leaf)]
    if not ragged:
        return x, y, weight  # lists of targets are of several outputs then
    if options.count("y") == 1:
        y = stack_targets(y, len(ragged[0]))
    y = read_ragged(y, "y", options, op)
    return x, y, read_ragged(weight, NAMES[2], options, op)


def _without_unreadable(x: Mapping, options: ReadOptions, op: str) -> Mapping:
    """The inputs, without columns that no input is called as and nobody could read.

    A frame as a dict of its columns has others, too: names, dates.
    """
    names = options.inputs
    if not names or not set(names) <= set(x):
        return x

    def is_readable(value: Any) -> bool:
        plain = ReadOptions(finite=False)
        try:
            prepare(value, None, None, op, options=plain)
        except ExBurnError:
            return False
        return True

    return {k: v for k, v in x.items() if k in names or is_readable(v)}


def _arrange(tree: Tree, name: str, options: ReadOptions, op: str) -> Tree:
    """Lists of values as arrays, and a frame as a dict of columns, where one is due."""
    if is_frame(tree) and not has_adapter(tree):
        return divide_frame(tree, name, options, op)
    if isinstance(tree, Mapping) and name == NAMES[0]:
        tree = _without_unreadable(tree, options, op)
    return as_values(tree, options.count(name))
