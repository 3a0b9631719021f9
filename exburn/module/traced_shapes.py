"""What calls of layers gave, for layers and inputs that are alike.

A deep model has hundreds of layers that differ in nothing but their names and values.
One of them is traced for the shapes of its outputs, the others give the same.
"""

from __future__ import annotations

import types
from collections.abc import Hashable
from typing import Any

import jax
import numpy as np
from flax import nnx

from exburn.core.batch_independence import is_foreign
from exburn.core.precision import get_precision
from exburn.module.meta import is_layer

_MOST = 4096
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
# Of a layer, what no call reads.
_LEFT_OUT = frozenset(("_meta", "_pytree__state", "_pytree__nodes", "_name"))
_results: dict[Hashable, Any] = {}


class _NotAlike(Exception):
    """Something of which only a trace tells what it does."""


def call_key(
    layer: Any, args: tuple, kwargs: dict, specs: list, training: bool | None
) -> Hashable | None:
    """What calls have in common whose outputs have the same shapes and dtypes.

    ``None`` where a layer is not built, is a user's, or holds a user's function, which
    is traced in any case; and where inputs have masks.
    """
    leaves, treedef = jax.tree.flatten((args, kwargs))
    if sum(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves) != len(specs):
        return None
    if layer.is_model or layer.on_host:
        return None
    config = jax.config
    modes = [
        str(getattr(config, f"jax_{name}"))
        for name in ("enable_x64", "numpy_dtype_promotion", "numpy_rank_promotion")
    ]
    try:
        parts = (layer, *leaves, training, get_precision(), *modes)
        return treedef, tuple(_describe(part) for part in parts)
    except _NotAlike:
        return None


def result_of(key: Hashable | None) -> Any:
    """What an earlier call with this key gave, or ``None``."""
    return None if key is None else _results.get(key)


def keep_result(key: Hashable | None, result: Any) -> None:
    """Notes what a call gave."""
    if key is not None:
        if len(_results) >= _MOST:
            _results.clear()
        _results[key] = result


def _describe(value: Any) -> Hashable:
    """A description that values have in common if calls treat them alike."""
    cls = type(value)
    if cls in _PLAIN:
        return cls, value
    if cls in (tuple, list):
        return cls, tuple(map(_describe, value))
    if cls is dict:
        return cls, tuple((_describe(k), _describe(v)) for k, v in value.items())
    if isinstance(value, nnx.Variable) and not is_foreign(cls):
        return cls, _describe_array(value.get_raw_value())
    if isinstance(value, jax.ShapeDtypeStruct):
        return _describe_array(value)
    if isinstance(value, np.dtype):
        return value
    if isinstance(value, types.FunctionType):
        if str(value.__module__).partition(".")[0] in ("exburn", "jax"):
            return value
        raise _NotAlike
    return cls, _describe_attributes(value)


def _describe_array(value: Any) -> Hashable:
    if not isinstance(value, jax.ShapeDtypeStruct | jax.Array):
        raise _NotAlike
    weak = getattr(value, "weak_type", False)
    return tuple(value.shape), value.dtype, weak


def _describe_attributes(value: Any) -> Hashable:
    """Of an object of ExBurn's own class: it is what its attributes are."""
    if is_foreign(value) or not hasattr(value, "__dict__"):
        raise _NotAlike
    if is_layer(value) and (value.is_model or not value.built):
        raise _NotAlike
    parts = [
        (name, _describe(part))
        for name, part in sorted(vars(value).items())
        if name not in _LEFT_OUT
    ]
    return getattr(type(value), "call", None), tuple(parts)
