"""Nested dicts, lists and tuples of arrays, with a name for every leaf."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from exburn.data.packed import PackedTokens
from exburn.data.padded import Padded

Tree = Any
NAMES = ("x", "y", "sample_weight")
_VALUES = (str, bytes, Real, np.bool_, np.generic)


def leaves(tree: Tree, name: str, *, nones: bool = False) -> Iterator[tuple[str, Any]]:
    """Yields (name, leaf) of a nested dict, list or tuple; ``None`` is left out.

    Example:
        >>> list(leaves({"a": 1, "b": [2, None]}, "x"))
        [("x['a']", 1), ("x['b'][0]", 2)]
    """
    if tree is None or isinstance(tree, np.ndarray):  # the others take longer to tell
        if nones or tree is not None:
            yield name, tree
    elif _is_mapping(tree):
        for key, value in tree.items():
            yield from leaves(value, f"{name}[{key!r}]", nones=nones)
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from leaves(value, f"{name}[{index}]", nones=nones)
    elif isinstance(tree, Padded):
        yield name, tree.values
        yield f"lengths of {name}", tree.lengths
    elif isinstance(tree, PackedTokens):
        yield name, tree.tokens
        yield f"segments of {name}", tree.segments
    else:
        yield name, tree


def in_order(tree: Tree, names: Sequence[str] | None) -> Tree:
    """A dict with an array for each of the names as a list in their order.

    Other trees, which a list of arrays in that order is one of, stay as they are.

    Example:
        >>> in_order({"a": 1, "b": 2, "id": 3}, ["b", "a"])
        [2, 1]
    """
    if not names or not _is_mapping(tree) or not set(names) <= set(tree):
        return tree
    return [tree[name] for name in names]


def _is_mapping(tree: Any) -> bool:
    """Not one that stands for one array, as ``scipy.sparse.dok_array`` does."""
    return isinstance(tree, Mapping) and not hasattr(tree, "shape")


def as_values(tree: Any, count: int = 1) -> Any:
    """Lists of numbers or strings in a tree as arrays; all else as it is.

    Args:
        tree: Inputs or targets of a model.
        count: How many arrays the tree holds. A nested list of values is one array,
            unless it has an entry for each of several.
    """
    if _is_mapping(tree):
        return {key: as_values(value) for key, value in tree.items()}
    if not isinstance(tree, list | tuple):
        return tree
    divided = count > 1 and len(tree) == count and isinstance(tree[0], list | tuple)
    if divided or not _holds_values(tree):
        return [as_values(v) for v in tree] if isinstance(tree, list) else tree
    array = _of_values(tree)
    return tree if array is None else array


def _holds_values(tree: Sequence) -> bool:
    """Tells whether nested lists hold numbers, strings and gaps, not arrays."""
    present = False
    for value in tree:
        if isinstance(value, list | tuple):
            if not _holds_values(value):
                return False
            present = True
        elif isinstance(value, _VALUES):
            present = True
        elif value is not None:
            return False
    return present


def _of_values(tree: Sequence) -> np.ndarray | None:
    """Nested lists of values as one array; of objects if not all are numbers."""
    flat = [value for _, value in leaves(tree, "", nones=True)]
    numbers = all(isinstance(value, Real | np.bool_) for value in flat)
    try:
        return np.asarray(tree) if numbers else np.asarray(tree, object)
    except (ValueError, OverflowError):  # rows of different lengths
        rows = np.empty(len(tree), object)
        rows[:] = list(tree)
        return rows


def map_leaves(function: Callable[[str, Any], Any], tree: Tree, name: str) -> Tree:
    """Applies ``function(name, leaf)`` to every leaf and keeps the containers.

    Example:
        >>> map_leaves(lambda name, leaf: leaf + 1, {"a": 1, "b": (2, None)}, "x")
        {'a': 2, 'b': (3, None)}
    """
    if tree is None or isinstance(tree, np.ndarray):
        return None if tree is None else function(name, tree)
    if _is_mapping(tree):
        items = tree.items()
        return {k: map_leaves(function, v, f"{name}[{k!r}]") for k, v in items}
    if isinstance(tree, list | tuple):
        items = [map_leaves(function, v, f"{name}[{i}]") for i, v in enumerate(tree)]
        if hasattr(tree, "_fields"):  # a namedtuple takes its fields one by one
            return type(tree)(*items)
        return items if isinstance(tree, list) else tuple(items)
    if isinstance(tree, Padded):
        lengths = function(f"lengths of {name}", tree.lengths)
        return Padded(function(name, tree.values), lengths, tree.axis)
    if isinstance(tree, PackedTokens):
        segments = function(f"segments of {name}", tree.segments)
        return PackedTokens(function(name, tree.tokens), segments)
    return function(name, tree)
