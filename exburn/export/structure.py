"""The structure of a model's outputs, as a text that a file of another format can hold.

Formats know outputs by their names alone. The text is JSON: the name of an output, or a
list of a container's kind and what is in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jax

from exburn.errors import FileFormatError

#: The key of the text among what a file says of itself.
KEY = "exburn.outputs"
_DEEPEST = 64


def encode(tree: Any, names: list[str]) -> str:
    """The text of a structure.

    Args:
        tree: Anything in that structure.
        names: The names of its leaves, in their order.

    Returns:
        The text; empty where ``decode`` needs none, and for containers of other kinds
        than lists, tuples and dicts by texts.

    Example:
        >>> encode({"a": 0, "b": (1, 2)}, ["a", "first", "second"])
        '["dict", {"a": "a", "b": ["tuple", "first", "second"]}]'
    """
    nested = jax.tree.structure(tree).unflatten(names)
    if nested == decode(None, {name: name for name in names}):
        return ""
    try:
        return json.dumps(_plain(nested))
    except TypeError:
        return ""


def _plain(value: Any) -> Any:
    if isinstance(value, str) or value is None:
        return value
    if type(value) in (list, tuple):
        return [type(value).__name__, *map(_plain, value)]
    if type(value) is dict and all(isinstance(key, str) for key in value):
        return ["dict", {key: _plain(entry) for key, entry in value.items()}]
    raise TypeError(type(value).__name__)


def decode(text: str | None, outputs: Mapping[str, Any]) -> Any:
    """Outputs in the structure of a text.

    Args:
        text: The text, if the file has one.
        outputs: They by name.

    Returns:
        Without a text the one output, or a dict of several.

    Raises:
        FileFormatError: The text is none of these outputs' structure.

    Example:
        >>> decode('["dict", {"a": ["list", "x", "y"]}]', {"x": 1, "y": 2})
        {'a': [1, 2]}
        >>> decode(None, {"x": 1}), decode(None, {"x": 1, "y": 2})
        (1, {'x': 1, 'y': 2})
    """
    if not text:
        return dict(outputs) if len(outputs) != 1 else next(iter(outputs.values()))
    left = dict(outputs)
    try:
        tree = _fill(json.loads(text), left, 0)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise _damage_error(outputs, error) from error
    if left:
        raise _damage_error(outputs, f"{', '.join(left)} are not in it")
    return tree


def _fill(plain: Any, left: dict[str, Any], depth: int) -> Any:
    """The value of a text; what it takes of the outputs is taken off."""
    if depth > _DEEPEST:
        raise ValueError("it is too deep")
    if plain is None:
        return None
    if isinstance(plain, str):
        return left.pop(plain)
    kind, *entries = plain
    if kind == "dict":
        (pairs,) = entries
        return {key: _fill(each, left, depth + 1) for key, each in pairs.items()}
    values = [_fill(each, left, depth + 1) for each in entries]
    return {"list": list, "tuple": tuple}[kind](values)


def _damage_error(outputs: Mapping[str, Any], cause: Any) -> FileFormatError:
    return FileFormatError(
        "predict",
        "the file's structure of its outputs is damaged",
        {"outputs": ", ".join(outputs), "cause": cause},
    )
