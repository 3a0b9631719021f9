"""Nested lists, tuples and dicts, with Keras' names; ``None`` counts as a leaf.

The work is that of ``jax.tree``. Weights, arrays and symbols are leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax

from exburn.errors import ArgumentError, DTypeError
from exburn.errors.boundary import api_boundary

__all__ = [
    "MAP_TO_NONE",
    "assert_same_paths",
    "assert_same_structure",
    "flatten",
    "flatten_with_path",
    "is_nested",
    "lists_to_tuples",
    "map_shape_structure",
    "map_structure",
    "map_structure_up_to",
    "pack_sequence_as",
    "traverse",
]


class MAP_TO_NONE:
    """What the function of :func:`traverse` returns to put ``None`` in the result.

    Example:
        >>> traverse(lambda x: MAP_TO_NONE if x == 1 else None, [1, 2])
        [None, 2]
    """


@api_boundary
def is_nested(structure: Any) -> bool:
    """Whether a value is a list, a tuple or a dict.

    Args:
        structure: Any value.

    Example:
        >>> is_nested([1]), is_nested("ab")
        (True, False)
    """
    return isinstance(structure, list | tuple | dict)


def _is_leaf(value: Any) -> bool:
    return not is_nested(value)


def _structure(value: Any, is_leaf: Callable = _is_leaf) -> Any:
    return jax.tree.structure(value, is_leaf=is_leaf)


@api_boundary
def flatten(structure: Any) -> list[Any]:
    """The leaves in order; those of a dict in the order of its sorted keys.

    Args:
        structure: A nested structure of lists, tuples and dicts.

    Example:
        >>> flatten({"b": [1, None], "a": 3})
        [3, 1, None]
    """
    return jax.tree.leaves(structure, is_leaf=_is_leaf)


@api_boundary
def flatten_with_path(structure: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """Every leaf with the keys and positions that lead to it.

    Args:
        structure: A nested structure of lists, tuples and dicts.

    Example:
        >>> flatten_with_path({"b": [1, 2]})
        [(('b', 0), 1), (('b', 1), 2)]
    """
    found: list[tuple[tuple, Any]] = []

    def walk(value: Any, path: tuple) -> None:
        if not is_nested(value):
            found.append((path, value))
            return
        for key, child in _children(value):
            walk(child, (*path, key))

    walk(structure, ())
    return found


def _children(value: Any) -> Iterable[tuple[Any, Any]]:
    if not isinstance(value, Mapping):
        return enumerate(value)
    ordered = type(value).__name__ == "OrderedDict"
    return [(key, value[key]) for key in (value if ordered else sorted(value))]


@api_boundary
def map_structure(
    func: Callable[..., Any], *structures: Any, none_is_leaf: bool = True
) -> Any:
    """``func`` of the leaves of one structure, or of several of the same form.

    Args:
        func: Function of as many leaves as there are structures.
        *structures: Nested lists, tuples and dicts.
        none_is_leaf: Whether ``func`` is called on ``None`` too.

    Raises:
        ArgumentError: The structures differ.

    Example:
        >>> map_structure(lambda a, b: a + b, {"k": [1, 2]}, {"k": [10, 20]})
        {'k': [11, 22]}
    """
    if not callable(func):
        raise DTypeError("map_structure", f"a function is needed, not {func!r}")
    if not structures:
        raise ArgumentError("map_structure", "at least one structure is needed")
    first, *others = structures
    for other in others:
        assert_same_structure(first, other)

    def call(*leaves):
        return None if leaves[0] is None and not none_is_leaf else func(*leaves)

    return jax.tree.map(call, first, *others, is_leaf=_is_leaf)


@api_boundary
def map_structure_up_to(
    shallow_structure: Any, func: Callable[..., Any], *structures: Any
) -> Any:
    """``func`` of the parts of the structures that lie at a shallow one's leaves.

    Args:
        shallow_structure: How deep to go.
        func: Function of as many parts as there are structures.
        *structures: At least as deep as ``shallow_structure``.

    Raises:
        ArgumentError: A structure does not go on where the shallow one does.

    Example:
        >>> map_structure_up_to([0, 0], len, [[1, 2], [3]])
        [2, 1]
    """
    treedef = _structure(shallow_structure)
    try:
        parts = [treedef.flatten_up_to(s) for s in structures]
    except ValueError as error:
        raise ArgumentError(
            "map_structure_up_to", "the structures differ", {"cause": error}
        ) from error
    return treedef.unflatten([func(*part) for part in zip(*parts, strict=True)])


@api_boundary
def assert_same_structure(a: Any, b: Any, check_types: Any = None) -> None:
    """Raises unless two structures have the same containers, keys and lengths.

    A dict is the same as any other kind of dict with its keys, in whatever order; lists
    and tuples are told apart.

    Args:
        a, b: Nested lists, tuples and dicts.
        check_types: Kept for Keras code; types are always compared.

    Raises:
        ArgumentError: They differ.

    Example:
        >>> assert_same_structure([1, {"k": 2}], [3, {"k": None}])
        >>> from collections import OrderedDict
        >>> assert_same_structure({"a": 1, "b": 2}, OrderedDict(b=1, a=2))
    """
    first, second = (_structure(_with_plain_dicts(tree)) for tree in (a, b))
    if first != second:
        raise ArgumentError(
            "assert_same_structure", "the structures differ", {"a": first, "b": second}
        )


def _with_plain_dicts(structure: Any) -> Any:
    """The structure with dicts for all kinds of dicts, as layers make of their own."""
    if isinstance(structure, dict):
        return {key: _with_plain_dicts(value) for key, value in structure.items()}
    if type(structure) in (list, tuple):
        return type(structure)(map(_with_plain_dicts, structure))
    return structure


@api_boundary
def assert_same_paths(a: Any, b: Any) -> None:
    """Raises unless two structures have leaves at the same keys and positions.

    Args:
        a: A nested structure of lists, tuples and dicts.
        b: Another one.

    Raises:
        ArgumentError: They do not.

    Example:
        >>> assert_same_paths([1, 2], (3, 4))
    """
    first = {path for path, _ in flatten_with_path(a)}
    second = {path for path, _ in flatten_with_path(b)}
    if first != second:
        raise ArgumentError(
            "assert_same_paths",
            "the paths differ",
            {"only in a": sorted(first - second), "only in b": sorted(second - first)},
        )


@api_boundary
def pack_sequence_as(structure: Any, flat_sequence: Iterable[Any]) -> Any:
    """The inverse of :func:`flatten`: a structure with other leaves.

    Args:
        structure: A nested structure of lists, tuples and dicts.
        flat_sequence: Its leaves.

    Raises:
        ArgumentError: The number of leaves differs.

    Example:
        >>> pack_sequence_as({"a": [1, 2]}, [3, 4])
        {'a': [3, 4]}
    """
    flat, treedef = list(flat_sequence), _structure(structure)
    if len(flat) != treedef.num_leaves:
        raise ArgumentError(
            "pack_sequence_as",
            f"{treedef.num_leaves} leaves are needed, received {len(flat)}",
        )
    return treedef.unflatten(flat)


@api_boundary
def lists_to_tuples(structure: Any) -> Any:
    """A tree with tuples instead of lists.

    Args:
        structure: A nested structure of lists, tuples and dicts.

    Example:
        >>> lists_to_tuples([1, {"k": [2]}])
        (1, {'k': (2,)})
    """
    return traverse(
        lambda v: tuple(v) if isinstance(v, list) else None, structure, top_down=False
    )


@api_boundary
def map_shape_structure(func: Callable[..., Any], structure: Any) -> Any:
    """``func`` of every shape, a tuple or list of sizes, in a structure.

    Args:
        func: A function of a shape.
        structure: A structure whose leaves are shapes.

    Example:
        >>> map_shape_structure(len, {"a": (None, 3), "b": [(1,)]})
        {'a': 2, 'b': [1]}
    """

    def is_shape(value: Any) -> bool:
        return not is_nested(value) or (
            not isinstance(value, dict)
            and all(size is None or isinstance(size, int) for size in value)
        )

    return jax.tree.map(func, structure, is_leaf=is_shape)


@api_boundary
def traverse(func: Callable[..., Any], structure: Any, top_down: bool = True) -> Any:
    """Replaces what ``func`` gives something for: containers as well as leaves.

    Args:
        func: Function of a container or leaf. ``None`` keeps it (and goes on inside),
            :class:`MAP_TO_NONE` puts ``None``, anything else is put in its place.
        structure: Nested lists, tuples and dicts.
        top_down: Whether a container is asked about before its children.

    Example:
        >>> traverse(lambda v: -v if isinstance(v, int) else None, [1, ("a", 2)])
        [-1, ('a', -2)]
    """

    def replace(value: Any) -> tuple[bool, Any]:
        new = func(value)
        if new is None:
            return False, value
        return True, None if new is MAP_TO_NONE or isinstance(new, MAP_TO_NONE) else new

    if top_down or not is_nested(structure):
        done, new = replace(structure)
        if done or not is_nested(structure):
            return new
    inner = jax.tree.map(
        lambda child: traverse(func, child, top_down),
        structure,
        is_leaf=lambda value: value is not structure,
    )
    return inner if top_down else replace(inner)[1]
