"""Copies of a compiled model: how they are compiled, and go on with its training."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import DictKey

from exburn.models.network import Network
from exburn.models.saving import (
    compile_arguments,
    set_training_state,
    training_state,
)
from exburn.module.building import spec_like
from exburn.module.traversal import iter_weights
from exburn.module.variable import own_copy
from exburn.optimizers.contract.trees import path_of


def compile_as_copy(model: Network, other: Network, memo: dict[int, Any]) -> None:
    """Goes on as the model would that this one is a deep copy of."""
    if compile_like(model, other, memo):
        set_training_state(model, jax.tree.map(own_copy, training_state(other)))


def compile_like(model: Any, other: Network, memo: dict[int, Any]) -> bool:
    """Compiles with copies of what the other was given, if that is known."""
    arguments = compile_arguments(other)
    if arguments is None:
        return False
    place = {name: arguments.pop(name) for name in ("device", "mesh")}  # no copies
    model.compile(**copy.deepcopy(arguments, memo), **place)
    return True


def set_up_like(model: Any, other: Network) -> None:
    """Gives a model the settings of training and the tokenizer of another."""
    compile_like(model, other, {})
    model.tokenizer = other.tokenizer


def go_on_like(model: Any, other: Network) -> None:
    """Sets up a copy that has a model's weights, and goes on with its training."""
    set_up_like(model, other)
    carry_training(model, other)


def carry_training(
    model: Any,
    other: Network,
    cut: Callable[[str, Any], Any] = lambda path, array: array,
) -> None:
    """Lets a copy that has a model's weights go on with the training of the model.

    The optimizer's state follows the weights, by their paths: moments, averages,
    accumulated gradients, the scale of the loss, the count of updates. Weights that
    only the copy has begin with slots of their own. Schedules of the learning rate
    count from here: that of the model may have come to its end.

    Args:
        cut: Called with a weight's path and an array of the optimizer that has the
            weight's shape. Returns what the copy takes of it, where weights are cut.
    """
    trainer, state = model._training_session.trainer, training_state(other)
    if trainer is None or state is None or not (state["step"] or state["opt_state"]):
        return
    shapes = {path: tuple(w.shape) for path, w, _ in iter_weights(other)}
    trained = trainer.holder.trained_weights()

    def one(place: tuple, array: Any) -> Any:
        keys = (getattr(key, "key", None) for key in place)
        path = next((key for key in keys if key in shapes), None)
        if path is not None and path not in trained:
            return array  # which is dropped below: weights in few bits have no slots
        if path is not None and array.shape == shapes[path]:
            array = jnp.asarray(cut(path, array))
        return own_copy(array)

    slots = jax.tree_util.tree_map_with_path(one, state["opt_state"])
    set_training_state(model, state | {"opt_state": slots})
    if slots is not None:
        holder = trainer.holder
        holder.fit_to_weights()
        holder.opt_state = holder.optimizer.restart_schedule(holder.opt_state)


def hand_over(giver: Network, taker: Network) -> None:
    """Lets a model go on with the optimizer's state of another that has its weights.

    One of them holds the other, so that a weight has other paths in it. Nothing is
    copied: whoever trains next makes the arrays its own.
    """
    state = training_state(giver)
    if state is None or state["opt_state"] is None:
        return
    paths = {id(weight): path for path, weight, _ in iter_weights(taker)}
    names = {
        path: paths[id(weight)]
        for path, weight, learns in iter_weights(giver)
        if learns and id(weight) in paths
    }

    def new_place(place: tuple) -> tuple:
        keys = [(key, getattr(key, "key", None)) for key in place]
        return tuple(DictKey(names[n]) if n in names else key for key, n in keys)

    leaves = jax.tree_util.tree_leaves_with_path(state["opt_state"])
    slots = {new_place(place): leaf for place, leaf in leaves}
    holders = [model._training_session.holder for model in (giver, taker)]
    holder = holders[1]
    params = {
        path: spec_like(weight.get_raw_value())
        for path, weight, _ in iter_weights(taker)
        if path in names.values()
    }
    form = holder.optimizer.as_stored(
        holder.optimizer.init(params), params, map(path_of, slots)
    )
    places = [place for place, _ in jax.tree_util.tree_leaves_with_path(form)]
    if not slots.keys() >= {*places}:  # only one of them scales its loss
        return
    structure = jax.tree.structure(form)
    holder.opt_state = structure.unflatten([slots[place] for place in places])
    for each in holders:
        each.current_opt_state()  # they share arrays from here on
    holder.opt_state = holder.optimizer.restart_schedule(holder.opt_state)
    holder.fit_to_weights()
