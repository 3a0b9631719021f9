"""Carrying out a plan on a model."""

from __future__ import annotations

import copy
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from exburn.building import cast_weights, materialize
from exburn.layer import Layer
from exburn.quantization.plan import Plan, plan_layer
from exburn.quantization.stand_ins import has_own_product, put_in_place
from exburn.quantization.weight import QuantizedWeight
from exburn.transforms import supplies
from exburn.traversal import iter_modules, iter_weights
from exburn.weights import Static

__all__ = ["carry_out", "twin"]


def twin(model: Any) -> Any:
    """A copy of a module that shares neither variables, arrays nor bookkeeping.

    Unlike ``clone`` it needs no configuration. Symbolic calls are not copied.
    """
    graphdef, state = nnx.split(model)
    own = lambda v: jnp.array(v, copy=True) if isinstance(v, jax.Array) else v  # noqa: E731
    result = nnx.merge(graphdef, jax.tree.map(own, state))
    _order_like(model, result, set())
    for _, module in iter_modules(result):
        if isinstance(module, Layer):
            book = copy.copy(module._book.value)
            book.calls, book.initial = [], {}
            object.__setattr__(module, "_book", Static(book))
    return result


def _order_like(first: Any, second: Any, seen: set[int]) -> None:
    """Puts attributes in the order of the first: ``nnx.merge`` sorts them by name."""
    if id(first) in seen:
        return
    seen.add(id(first))
    mine, other = vars(first), vars(second)
    ordered = {key: other[key] for key in mine if key in other}
    rest = {key: value for key, value in other.items() if key not in ordered}
    other.clear()
    other.update(ordered | rest)
    for key, value in mine.items():
        if isinstance(value, nnx.Pytree) and not isinstance(value, nnx.Variable):
            _order_like(value, other[key], seen)


def carry_out(plan: Plan) -> None:
    """Exchanges weights and policies of the plan's layers, in place."""
    for target in plan.targets:
        layer = target.layer
        if not plan.settings.casts and layer.precision != target.policy:
            layer._policy_was_set = True  # of a cast the model keeps a record
        layer._policy, layer._own_policy = target.policy, True
        if plan.settings.casts:
            cast_weights(layer, target.policy)
        for name, scheme in target.schemes.items():
            setattr(layer, name, QuantizedWeight(getattr(layer, name), scheme))
        if target.schemes and has_own_product(type(layer)):
            put_in_place(layer)


@supplies("quantize")
def quantize_layer(layer: Any, mode: Any, block_size: int | None) -> None:
    """Packs the weights of one layer, in place."""
    plan = plan_layer(layer, mode, block_size)
    materialize(layer)
    carry_out(plan)


def freeze_parameters(model: Any, names: list[str] | None = None) -> None:
    """Keeps weights that are still arrays out of training: all, or those named."""
    for path, weight, _ in iter_weights(model):
        if isinstance(weight, nnx.Param) and (names is None or path in names):
            weight.set_metadata("frozen", True)
