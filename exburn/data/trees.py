"""Nested dicts, lists and tuples of arrays, with a name for every leaf."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Tree = Any
NAMES = ("x", "y", "sample_weight")


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


def as_texts(tree: Any, one: bool = False) -> Any:
    """Lists of strings in a tree as arrays; all else as it is.

    Args:
        tree: Inputs of a model.
        one: Whether it is one input, so that nested lists of strings are one array.

    Example:
        >>> as_texts({"word": ["a", "b"], "n": 1})
        {'word': array(['a', 'b'], dtype=object), 'n': 1}
        >>> as_texts([["a"], ["b"]], one=True).shape
        (2, 1)
    """
    if _is_mapping(tree):
        return {key: as_texts(value) for key, value in tree.items()}
    if not isinstance(tree, list | tuple):
        return tree
    flat = [leaf for _, leaf in leaves(tree, "")] if one else tree
    if flat and all(isinstance(value, str | bytes) for value in flat):
        return np.asarray(tree, object)
    return [as_texts(v) for v in tree] if isinstance(tree, list) else tree


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
    return function(name, tree)
