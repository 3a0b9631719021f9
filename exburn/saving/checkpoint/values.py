"""Nested Python values as JSON, with their arrays taken out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from exburn.errors import CheckpointError

_TAG = "$"  # a dict with this key is not a dict of the user's


def encode(value: Any, arrays: dict[str, np.ndarray], prefix: str) -> Any:
    """A value of dicts, lists, tuples, scalars and arrays as plain JSON.

    Args:
        value: The value. Arrays that may be written to are copied.
        arrays: Receives the arrays, under names that begin with ``prefix``.
        prefix: Also names the value in errors.

    Raises:
        CheckpointError: A value of another type.

    Example:
        >>> arrays = {}
        >>> encode({"best": 0.5, "weights": np.ones(2)}, arrays, "stop")
        {'best': 0.5, 'weights': {'$': 'array', 'name': 'stop/weights'}}
        >>> arrays
        {'stop/weights': array([1., 1.])}
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        arrays[prefix] = np.asarray(value)
        return {_TAG: "scalar", "name": prefix}
    if hasattr(value, "__array__") and hasattr(value, "dtype"):
        array = np.asarray(value)
        arrays[prefix] = array.copy() if array.flags.writeable else array
        return {_TAG: "array", "name": prefix}
    if isinstance(value, Mapping):
        if all(type(key) is str and key != _TAG for key in value):
            return {k: encode(v, arrays, f"{prefix}/{k}") for k, v in value.items()}
        items = [
            [encode(k, arrays, f"{prefix}/{i}.key"), encode(v, arrays, f"{prefix}/{i}")]
            for i, (k, v) in enumerate(value.items())
        ]
        return {_TAG: "dict", "items": items}
    if isinstance(value, list | tuple):
        parts = [encode(v, arrays, f"{prefix}/{i}") for i, v in enumerate(value)]
        return parts if type(value) is list else {_TAG: "tuple", "items": parts}
    raise CheckpointError(
        "checkpoint",
        f"{prefix} is a {type(value).__name__}, which a checkpoint cannot hold",
        hint="state_dict() may return numbers, strings, None, arrays, and lists, "
        "tuples and dicts of these.",
    )


def decode(value: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The inverse of :func:`encode`."""
    if isinstance(value, list):
        return [decode(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(_TAG)
    if kind is None:
        return {k: decode(v, arrays) for k, v in value.items()}
    if kind == "array":
        return arrays[value["name"]]
    if kind == "scalar":
        return arrays[value["name"]][()]
    items = [decode(v, arrays) for v in value["items"]]
    return tuple(items) if kind == "tuple" else dict(items)


def equal(one: Any, other: Any) -> bool:
    """Whether two values are the same, bit for bit.

    Example:
        >>> equal({"a": float("nan")}, {"a": float("nan")}), equal((1,), [1])
        (True, False)
    """
    first: dict[str, np.ndarray] = {}
    second: dict[str, np.ndarray] = {}
    if repr(encode(one, first, "")) != repr(encode(other, second, "")):
        return False
    return all(
        a is second[name]
        or (a.dtype, a.shape, a.tobytes())
        == (second[name].dtype, second[name].shape, second[name].tobytes())
        for name, a in first.items()
    )
