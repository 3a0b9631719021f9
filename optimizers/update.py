"""One update as a pure function: what happens to gradients, in which order."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from exburn.optimizers import gradients
from exburn.optimizers.exclusions import decays
from exburn.optimizers.rate import initial_rate
from exburn.optimizers.trees import (
    has_narrow,
    initial_state,
    like,
    map_with_path,
    no_remainders,
    same_shapes,
    same_structure,
    split_off_remainders,
    widen,
    with_remainders,
)

__all__ = ["Update"]


class Update(abc.ABC):
    """The pure pair ``init`` and ``update``, around the rule of a subclass."""

    #: Whether parameters in 16-bit floats are updated in float32.
    widens = True

    weight_decay: float | None
    l2_weight_decay: float | None
    weight_decay_exclusions: Sequence[str]
    clipnorm: float | None
    clipvalue: float | None
    global_clipnorm: float | None
    use_ema: bool
    ema_momentum: float
    ema_overwrite_frequency: int | None
    loss_scale_factor: float | None
    accumulate: Any
    rate: Any
    _learning_rate: Any
    #: The learning rate that holds again after a fit with a schedule of its own.
    _number: float = 0.0
    _scale: float

    @abc.abstractmethod
    def transformation(
        self, learning_rate: Any, count: Any
    ) -> optax.GradientTransformation:
        """The update rule of one update, as an optax transformation.

        Args:
            learning_rate: float32 scalar, the rate of this update.
            count: int32 scalar, the number of updates before this one.
        """

    def apply_rule(
        self, grads: Any, inner: Any, params: Any, learning_rate: Any, count: Any
    ) -> tuple[Any, Any]:
        """What is added to the parameters, and the rule's new state."""
        rule = self.transformation(learning_rate, count)
        return rule.update(grads, inner, params)

    def init_rule(self, params: Any) -> Any:
        """The rule's state before the first update."""
        return self.transformation(jnp.float32(0.0), jnp.int32(0)).init(params)

    def decay_of(self, path: str, shape: tuple[int, ...]) -> float | None:
        """The decoupled weight decay of a parameter that is not excluded from it."""
        return self.weight_decay

    def init(self, params: Any) -> dict[str, Any]:
        """The state before the first update; nothing is compiled for it.

        Args:
            params: Tree of arrays, usually nested dicts.
        """

        def make(tree):
            wide = widen(tree)
            state = {"inner": self.init_rule(wide if self.widens else tree)}
            if self.accumulate > 1:
                sums = jax.tree.map(jnp.zeros_like, wide)
                state["accumulated"] = {"gradients": sums, "batches": jnp.int32(0)}
            if self.use_ema:
                state["average"] = jax.tree.map(jnp.copy, wide)
            if self.widens and has_narrow(tree):
                state["rounded_off"] = no_remainders(tree)
            return state

        state = initial_state(make, params)
        # Under a schedule, which may not know its epochs yet, the number is not used.
        rate = self._number if callable(self._learning_rate) else self._learning_rate
        return {"rate": jax.device_put(initial_rate(rate, self._scale)), **state}

    def update(
        self, grads: Any, opt_state: Mapping[str, Any], params: Any
    ) -> tuple[Any, dict[str, Any]]:
        """One step from gradients: ``(new_params, new_opt_state)``.

        With ``gradient_accumulation_steps`` this is one batch of a group: it updates
        if it is the group's last. A loop over whole groups calls ``accumulate_batch``
        for each batch and ``update_accumulated`` once, and asks nothing.

        Args:
            grads: Tree like ``params``.
            opt_state: What ``init`` or the last ``update`` returned.
            params: Tree of arrays.

        Raises:
            ShapeError: Gradients, parameters and state do not belong together.
        """
        same_shapes(f"{type(self).__name__}.update", grads, params)
        if "accumulated" not in opt_state:
            return self._step(self._unscaled(grads), dict(opt_state), params)
        state = self.accumulate_batch(grads, opt_state)
        return jax.lax.cond(
            state["accumulated"]["batches"] >= self.accumulate,
            lambda: self.update_accumulated(state, params),
            lambda: (params, state),
        )

    def accumulate_batch(
        self, grads: Any, opt_state: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The state with one more batch's gradients in its sums; updates nothing."""
        sums = opt_state["accumulated"]
        total = jax.tree.map(
            lambda s, g: s + g.astype(s.dtype),
            sums["gradients"],
            self._unscaled(grads),
        )
        batches = sums["batches"] + 1
        return {**opt_state, "accumulated": {"gradients": total, "batches": batches}}

    def update_accumulated(
        self, opt_state: Mapping[str, Any], params: Any
    ) -> tuple[Any, dict[str, Any]]:
        """The one update of a group, from the mean of its gradients."""
        state = dict(opt_state)
        total = state.pop("accumulated")["gradients"]
        mean = jax.tree.map(lambda s: s / self.accumulate, total)
        new_params, new_state = self._step(mean, state, params)
        zeros = jax.tree.map(jnp.zeros_like, total)
        new_state["accumulated"] = {"gradients": zeros, "batches": jnp.int32(0)}
        return new_params, new_state

    def _unscaled(self, grads: Any) -> Any:
        if self.loss_scale_factor is None:
            return grads
        # In float32: a quotient of 16-bit floats could vanish again.
        return jax.tree.map(lambda g: g / self.loss_scale_factor, widen(grads))

    def _step(self, grads, state, params) -> tuple[Any, dict[str, Any]]:
        count, learning_rate = state["rate"]["count"], self.rate(state)
        wide = params
        if self.widens:
            grads, wide = widen(grads), widen(params)
        if "rounded_off" in state:
            wide = with_remainders(wide, state["rounded_off"])
        same_structure(
            type(self).__name__, state["inner"], jax.eval_shape(self.init_rule, wide)
        )
        grads = gradients.clip(
            grads, self.clipnorm, self.clipvalue, self.global_clipnorm
        )
        if self.l2_weight_decay:
            grads = map_with_path(self._add_l2, grads, wide)
        wide = map_with_path(
            lambda path, p: self._decayed(path, p, learning_rate), wide
        )
        deltas, inner = self.apply_rule(
            grads, state["inner"], wide, learning_rate, count
        )
        exact = jax.tree.map(_sum, wide, deltas)
        new_state = {
            **state,
            "rate": {**state["rate"], "count": count + 1},
            "inner": like(type(self).__name__, inner, state["inner"]),
        }
        if "rounded_off" in state:
            new_params, new_state["rounded_off"] = split_off_remainders(exact, params)
        else:
            new_params = jax.tree.map(lambda p, e: e.astype(p.dtype), params, exact)
        if self.use_ema:
            new_params, new_state["average"] = gradients.moving_average(
                new_params,
                state["average"],
                count,
                self.ema_momentum,
                self.ema_overwrite_frequency,
            )
        return new_params, new_state

    def _add_l2(self, path, grad, param):
        if not decays(path, self.weight_decay_exclusions):
            return grad
        return grad + self.l2_weight_decay * param

    def _decayed(self, path, param, learning_rate):
        decay = self.decay_of(path, param.shape)
        if not decay or not decays(path, self.weight_decay_exclusions):
            return param
        return (param - param * (decay * learning_rate)).astype(param.dtype)


def _sum(a: Any, b: Any) -> Any:
    """``a + b``, which lax traces in a fifth of the time where it can."""
    alike = a.dtype == b.dtype and a.shape == b.shape
    return jax.lax.add(a, b) if alike else a + b
