"""A layer's weights: made as specs, filled once the root of the model is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn import constraints, initializers, regularizers
from exburn.core import forward_context
from exburn.core.precision import is_float, standardize_dtype
from exburn.errors import NotBuiltError, ShapeError
from exburn.module.building import materialize
from exburn.module.layer.seeds import iter_variables
from exburn.module.traversal import is_abstract, iter_weights
from exburn.module.variable import (
    Place,
    Weight,
    as_array,
    assign,
    scalars,
)

__all__ = [
    "count_params",
    "fill_weights",
    "list_own_weights",
    "list_weights",
    "load_weights",
    "make_weight",
    "replace_weights",
]

_RULES = {"regularizer": regularizers.get, "constraint": constraints.get}


def make_weight(
    layer: Any,
    kind: type[Weight],
    shape: Any,
    initializer: Any,
    dtype: Any,
    name: str | None,
    rules: Mapping[str, Any],
) -> Weight:
    """A weight of a layer, a spec until it is filled; see ``Layer.add_weight``."""
    shape = tuple(shape or ())
    if any(d is None or not isinstance(d, int | np.integer) for d in shape):
        raise ShapeError(
            layer.name,
            f"a weight's shape must be known, received {shape}",
            hint="Give the sizes in Input(shape), except for free axes.",
        )
    own_dtype = dtype is not None
    dtype = jnp.dtype(standardize_dtype(dtype or layer.variable_dtype))
    if initializer is None:
        initializer = "glorot_uniform" if is_float(dtype) else "zeros"
    meta: dict[str, Any] = {"initializer": initializers.get(initializer)}
    meta["place"] = Place(layer)
    if own_dtype:
        meta["own_dtype"] = True
    if name:
        meta["label"] = name
    meta |= {key: _RULES[key](rule) for key, rule in rules.items() if rule is not None}
    ctx = forward_context.current()
    if ctx is not None and ctx.builds is not None:
        return kind(jnp.zeros(shape, dtype), **meta)
    return kind(jax.ShapeDtypeStruct(tuple(map(int, shape)), jnp.dtype(dtype)), **meta)


def list_weights(
    layer: Any, trainable: bool | None = None, *, carried: bool = False
) -> list[Weight]:
    """The weights of a layer and of those inside, filled.

    Args:
        layer: The layer.
        trainable: Only those that are trained, or that are not.
        carried: Also the states of stateful layers and the seeds of random ones.
    """
    found = iter_variables(layer) if carried else iter_weights(layer, carried=False)
    weights = fill_weights(layer, found)
    return [w for w, learns in weights if trainable in (None, learns)]


def fill_weights(
    layer: Any, found: Iterable[tuple[str, Weight, bool]]
) -> list[tuple[Weight, bool]]:
    """Weights of a layer, and whether they are trained; none is a spec any more."""
    weights = [(weight, learns) for _, weight, learns in found]
    if any(is_abstract(weight) for weight, _ in weights):
        materialize(layer)
    return weights


def list_own_weights(layer: Any) -> list[Weight]:
    """The layer's weights without those of layers inside, filled."""
    layer._require_weights()
    weights = iter_weights(layer, carried=False)
    return [weight for path, weight, _ in weights if "/" not in path]


def load_weights(layer: Any, store: Mapping[str, Any]) -> None:
    """Sets a layer's own weights from arrays ``"0"``, ``"1"`` …"""
    own = list_own_weights(layer)
    if len(store) != len(own):
        raise ShapeError(
            f"{layer.name}.load_own_variables",
            f"the layer has {len(own)} weights, received {len(store)} arrays",
        )
    for number, weight in enumerate(own):
        assign(weight, store[str(number)])


def replace_weights(layer: Any, weights: Iterable[Any]) -> None:
    """Replaces a layer's weights, all of them or none."""
    own = layer.weights
    weights = list(weights)
    paths = [path for path, _, _ in iter_weights(layer, carried=False)]
    if len(own) != len(weights):
        raise ShapeError(
            f"{layer.name}.set_weights",
            f"{len(own)} arrays are needed, received {len(weights)}",
            {"weights": ", ".join(paths)},
            hint="Take them from get_weights() of an equal model.",
        )
    arrays = []
    for path, w, new in zip(paths, own, weights, strict=True):
        array = as_array(f"{layer.name}.set_weights", path, new)
        if array.shape != tuple(w.shape):
            raise ShapeError(
                f"{layer.name}.set_weights",
                f"{path} has shape {tuple(w.shape)}, received {array.shape}",
                hint="Take them from get_weights() of an equal model.",
            )
        arrays.append(array)
    for w, array in zip(own, arrays, strict=True):
        assign(w, array)


def count_params(layer: Any) -> int:
    """Number of scalars in all weights."""
    if not layer.built:
        raise NotBuiltError(
            layer.name,
            "it has no weights before it is built",
            hint="Call it on data first, or give the model an Input(shape).",
        )
    return sum(scalars(w) for _, w, _ in iter_weights(layer, carried=False))
