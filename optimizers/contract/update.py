"""One update as a pure function: what happens to gradients, in which order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.checks import is_known
from exburn.optimizers.contract import complex_parameters, eight_bits, gradients
from exburn.optimizers.contract.exclusions import decays
from exburn.optimizers.contract.newcomers import NEWCOMERS, apply_rules
from exburn.optimizers.contract.rate import initial_rate
from exburn.optimizers.contract.trees import (
    has_narrow,
    initial_state,
    like,
    map_with_path,
    no_remainders,
    same_structure,
    split_off_remainders,
    widen,
    with_remainders,
)

_LEAST = 1e-20  # weight of a batch in which no token counts


def make_state(optimizer: Any, params: Any, rate: float) -> dict[str, Any]:
    """An optimizer's state before the first update."""

    def make(tree):
        tree = complex_parameters.split(tree)
        wide = widen(tree)
        inner = optimizer.init_rule(wide if optimizer.widens else tree)
        state = {"inner": eight_bits.initial(optimizer, inner)}
        if optimizer.accumulate > 1:
            sums = jax.tree.map(jnp.zeros_like, wide)
            state["accumulated"] = {"gradients": sums, "batches": jnp.int32(0)}
            if optimizer.weighs_batches:
                state["accumulated"]["weights"] = jnp.float32(0)
        if optimizer.use_ema:
            state["average"] = jax.tree.map(jnp.copy, wide)
        if optimizer.widens and has_narrow(tree):
            state["rounded_off"] = no_remainders(tree)
        return state

    state = initial_state(make, params)
    return {"rate": jax.device_put(initial_rate(rate, optimizer._scale)), **state}


def real_gradients(optimizer: Any, grads: Any) -> Any:
    """The gradients of the loss by real numbers, from those that ``jax.grad`` gives.

    Those were of the loss times its scale, and may be by complex parameters.
    """
    grads = complex_parameters.split_gradients(grads)
    if optimizer.loss_scale_factor is None:
        return grads
    # In float32: a quotient of 16-bit floats could vanish again.
    return jax.tree.map(lambda g: g / optimizer.loss_scale_factor, widen(grads))


def add_gradients(
    sums: Mapping[str, Any], grads: Any, weight: Any = None
) -> dict[str, Any]:
    """The sums of a group's gradients with those of one more batch.

    Args:
        weight: What the batch counts for, where the sums have weights. One without any
            counts for as good as nothing: what is added to its loss holds in a group
            of such batches, too.
    """
    new: dict[str, Any] = {"batches": sums["batches"] + 1}
    wide = jax.tree.map(lambda s, g: g.astype(s.dtype), sums["gradients"], grads)
    if "weights" in sums:
        weight = jnp.maximum(1.0 if weight is None else weight, _LEAST)
        wide = jax.tree.map(lambda g: g * weight, wide)
        new["weights"] = sums["weights"] + weight
    return {"gradients": jax.tree.map(jnp.add, sums["gradients"], wide), **new}


def weighs_batches(optimizer: Any) -> bool:
    """Whether each batch of a group counts by its weight: by its tokens."""
    return optimizer._by_tokens and optimizer.accumulate > 1


def accumulate_batch(
    optimizer: Any, grads: Any, opt_state: Mapping[str, Any], weight: Any = None
) -> dict[str, Any]:
    """The state with one more batch's gradients in its sums; updates nothing.

    Args:
        weight: As of ``update``.
    """
    grads = real_gradients(optimizer, grads)
    sums = add_gradients(opt_state["accumulated"], grads, weight)
    return {**opt_state, "accumulated": sums}


def update_accumulated(
    optimizer: Any, opt_state: Mapping[str, Any], params: Any
) -> tuple[Any, dict[str, Any]]:
    """The one update of a group, from the mean of its gradients."""
    state = dict(opt_state)
    sums = state.pop("accumulated")
    count = sums.get("weights", optimizer.accumulate)
    mean = jax.tree.map(lambda s: s / count, sums["gradients"])
    new_params, new_state = optimizer._step(mean, state, params)
    new_state["accumulated"] = jax.tree.map(jnp.zeros_like, sums)
    return new_params, new_state


def step(
    optimizer: Any, grads: Any, state: dict[str, Any], params: Any
) -> tuple[Any, dict[str, Any]]:
    """An update from the gradients of the loss itself, by real numbers."""
    params = complex_parameters.split(params)
    op = type(optimizer).__name__
    count, learning_rate = state["rate"]["count"], optimizer.rate(state)
    wide = params
    if optimizer.widens:
        grads, wide = widen(grads), widen(params)
    if "rounded_off" in state:
        wide = with_remainders(wide, state["rounded_off"])
    example = jax.eval_shape(optimizer.init_rule, wide)
    old = eight_bits.unpack(optimizer, state["inner"])
    same_structure(op, old, example)
    grads = gradients.clip(
        grads, optimizer.clipnorm, optimizer.clipvalue, optimizer.global_clipnorm
    )
    grads, wide = _decay(optimizer, grads, wide, learning_rate)
    if NEWCOMERS in state:
        deltas, inner, groups = apply_rules(
            optimizer, grads, {**state, "inner": old}, wide, learning_rate
        )
        state = state | {NEWCOMERS: groups}
    else:
        deltas, inner = optimizer.apply_rule(grads, old, wide, learning_rate, count)
    exact = jax.tree.map(_sum, wide, deltas)
    new_state = {
        **state,
        "rate": {**state["rate"], "count": count + 1},
        "inner": eight_bits.pack(optimizer, like(op, inner, old)),
    }
    if "rounded_off" in state:
        new_params, new_state["rounded_off"] = split_off_remainders(exact, params)
    else:
        new_params = jax.tree.map(lambda p, e: e.astype(p.dtype), params, exact)
    if optimizer.use_ema:
        new_params, new_state["average"] = gradients.moving_average(
            new_params,
            state["average"],
            count,
            optimizer.ema_momentum,
            optimizer.ema_overwrite_frequency,
        )
    return complex_parameters.join(new_params), new_state


def _decay(
    optimizer: Any, grads: Any, params: Any, learning_rate: Any
) -> tuple[Any, Any]:
    """Both kinds of weight decay: in the gradients, and of the parameters."""
    l2, exclusions = optimizer.l2_weight_decay, optimizer.weight_decay_exclusions

    def add_l2(path, grad, param):
        path = complex_parameters.path_of_parameter(path)
        return grad + l2 * param if decays(path, exclusions) else grad

    def shrink(path, param):
        path = complex_parameters.path_of_parameter(path)
        decay = optimizer.decay_of(path, param.shape)
        if decay is None or is_known(decay, 0) or not decays(path, exclusions):
            return param
        return (param - param * (decay * learning_rate)).astype(param.dtype)

    if l2 is not None and not is_known(l2, 0):
        grads = map_with_path(add_l2, grads, params)
    return grads, map_with_path(shrink, params)


def _sum(a: Any, b: Any) -> Any:
    """``a + b``, which lax traces in a fifth of the time where it can."""
    alike = a.dtype == b.dtype and a.shape == b.shape
    return jax.lax.add(a, b) if alike else a + b
