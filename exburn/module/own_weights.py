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
from exburn.module.seed_generator import iter_variables
from exburn.module.traversal import is_abstract, iter_weights
from exburn.module.variable import (
    Buffer,
    Parameter,
    Weight,
    WeightPlace,
    alive,
    as_array,
    assign,
    refuse_overwriting,
    scalars,
)
from exburn.runtime.sharding.arrays import to_host


def add_weight(
    self: Any,
    shape: Any = None,
    initializer: Any = None,
    dtype: Any = None,
    trainable: bool = True,
    autocast: bool = True,
    regularizer: Any = None,
    constraint: Any = None,
    aggregation: str = "none",
    overwrite_with_gradient: bool = False,
    name: str | None = None,
) -> Weight:
    """Creates a weight, filled from the seed and its path when the model is known.

    Args:
        shape: Its shape; ``()`` by default.
        initializer: ``glorot_uniform`` for floats by default, else zeros.
        dtype: The layer's parameter dtype by default; a given one stays when the
            layer's policy changes.
        trainable: Whether the optimizer updates it.
        regularizer: Function of the weight, added to the loss.
        constraint: Projection applied after every update.
        autocast, aggregation: For Keras code, see ``exburn.Variable``.
        overwrite_with_gradient: Must be False.
        name: Shown in paths until the weight is an attribute; then that name is.

    Raises:
        ShapeError: A size is unknown.
        ArgumentError: ``overwrite_with_gradient`` is asked for.
    """
    shape = tuple(shape or ())
    if any(d is None or not isinstance(d, int | np.integer) for d in shape):
        raise ShapeError(
            self.name,
            f"a weight's shape must be known, received {shape}",
            hint="Give the sizes in Input(shape), except for free axes.",
        )
    refuse_overwriting(f"{self.name}.add_weight", overwrite_with_gradient)
    own_dtype = dtype is not None
    dtype = jnp.dtype(standardize_dtype(dtype or self.variable_dtype))
    if initializer is None:
        initializer = "glorot_uniform" if is_float(dtype) else "zeros"
    meta: dict[str, Any] = {"initializer": initializers.get(initializer)}
    meta["place"] = WeightPlace(self)
    if own_dtype:
        meta["own_dtype"] = True
    if name:
        meta["label"] = name
    if regularizer is not None:
        meta["regularizer"] = regularizers.get(regularizer)
    if constraint is not None:
        meta["constraint"] = constraints.get(constraint)
    kind = Parameter if trainable else Buffer
    ctx = forward_context.current()
    if ctx is not None and ctx.builds is not None:
        return kind(jnp.zeros(shape, dtype), **meta)
    return kind(jax.ShapeDtypeStruct(tuple(map(int, shape)), jnp.dtype(dtype)), **meta)


def add_variable(
    self: Any, shape: Any, initializer: Any, *args: Any, **kwargs: Any
) -> Weight:
    """As :meth:`add_weight`, with a shape and an initializer that must be given.

    Args:
        shape: The shape.
        initializer: Initializer of the values.
    """
    return self.add_weight(shape, initializer, *args, **kwargs)


def list_weights(
    layer: Any, trainable: bool | None = None, *, carried: bool = False
) -> list[Weight]:
    """The weights of a layer and of those inside, filled.

    Args:
        trainable: Only those that are trained, or that are not.
        carried: Also the states of stateful layers and the seeds of random ones.
    """
    entries = iter_variables(layer) if carried else iter_weights(layer, carried=False)
    weights = _fill_weights(layer, entries)
    return [w for w, learns in weights if trainable in (None, learns)]


def _fill_weights(
    layer: Any, entries: Iterable[tuple[str, Weight, bool]]
) -> list[tuple[Weight, bool]]:
    """Weights of a layer, and whether they are trained; none is a spec any more."""
    weights = [(weight, learns) for _, weight, learns in entries]
    if any(is_abstract(weight) for weight, _ in weights):
        materialize(layer)
    return weights


def list_own_weights(layer: Any) -> list[Weight]:
    """The layer's weights without those of layers inside, filled."""
    layer._require_weights()
    weights = iter_weights(layer, carried=False)
    return [weight for path, weight, _ in weights if "/" not in path]


def require_weights(self: Any) -> list[Weight]:
    """All weights; those that had no values have got them."""
    return [weight for weight, _ in _fill_weights(self, iter_weights(self))]


def penalties(layer: Any) -> list[jax.Array]:
    """The regularizers' values of the weights that are trained."""
    return [
        regularizer(weight.get_value())
        for weight in layer.trainable_weights
        if (regularizer := weight.get_metadata().get("regularizer"))
    ]


def get_weights(self: Any) -> list[np.ndarray]:
    """Host copies of the weights, in the order of ``weights``."""
    return [np.array(to_host(alive(w.get_value()))) for w in self.weights]


def set_weights(self: Any, weights: Any) -> None:
    """Replaces the weights by arrays of the same shapes, in the same order.

    Args:
        weights: The arrays.

    Raises:
        ShapeError: The number of arrays or a shape differs; nothing is changed.
        DTypeError: One of them cannot become an array of numbers; as before.
    """
    own = self.weights
    weights = list(weights)
    paths = [path for path, _, _ in iter_weights(self, carried=False)]
    if len(own) != len(weights):
        raise ShapeError(
            f"{self.name}.set_weights",
            f"{len(own)} arrays are needed, received {len(weights)}",
            {"weights": ", ".join(paths)},
            hint="Take them from get_weights() of an equal model.",
        )
    arrays = []
    for path, w, new in zip(paths, own, weights, strict=True):
        array = as_array(f"{self.name}.set_weights", path, new)
        if array.shape != tuple(w.shape):
            raise ShapeError(
                f"{self.name}.set_weights",
                f"{path} has shape {tuple(w.shape)}, received {array.shape}",
                hint="Take them from get_weights() of an equal model.",
            )
        arrays.append(array)
    for w, array in zip(own, arrays, strict=True):
        assign(w, array)


def save_own_variables(self: Any, store: dict[str, Any]) -> None:
    """Puts what is to be saved into a dict; override it to save more.

    Weights are saved without it. It is called if a class overrides it, and what it
    stores is given to ``load_own_variables``, after the weights have their values.
    To save files, define ``save_assets(self, folder)`` and ``load_assets``.

    Args:
        store: Takes arrays of numbers by name. This method stores the layer's own
            weights as ``"0"``, ``"1"`` …, without those of layers inside.

    Source: Keras, ``Layer.save_own_variables``.
    """
    for number, weight in enumerate(list_own_weights(self)):
        store[str(number)] = np.array(to_host(weight.get_value()))


def load_own_variables(self: Any, store: Mapping[str, Any]) -> None:
    """Takes up what ``save_own_variables`` stored; override both or none.

    Args:
        store: The arrays by number, from ``"0"``.

    Raises:
        ShapeError: The number of arrays or a shape differs.
    """
    own = list_own_weights(self)
    if len(store) != len(own):
        raise ShapeError(
            f"{self.name}.load_own_variables",
            f"the layer has {len(own)} weights, received {len(store)} arrays",
        )
    for number, weight in enumerate(own):
        assign(weight, store[str(number)])


def count_params(self: Any) -> int:
    """Number of scalars in all weights."""
    if not self.built:
        raise NotBuiltError(
            self.name,
            "it has no weights before it is built",
            hint="Call it on data first, or give the model an Input(shape).",
        )
    return sum(scalars(w) for _, w, _ in iter_weights(self, carried=False))
