"""Nadam."""

from __future__ import annotations

import math
from typing import Any, Unpack

import jax.numpy as jnp
import optax

from exburn.core.checks import check_number, check_rate
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.options import Options
from exburn.optimizers.contract.rules import bias_correction, per_parameter


class Nadam(Optimizer):
    r"""Adam with Nesterov momentum, whose momentum grows over the first steps.

    .. math::
        μ_t = β_1 (1 − \tfrac{1}{2} 0.96^t) \qquad Π_t = μ_1 ⋯ μ_t \\
        \hat m = \frac{μ_{t+1} m}{1 − Π_{t+1}} + \frac{(1 − μ_t) g}{1 − Π_t} \qquad
        p ← p − η \frac{\hat m}{\sqrt{v / (1 − β_2^t)} + ε}

    Args:
        beta_1: Decay of the mean of gradients.
        beta_2: Decay of the mean of squared gradients.
        epsilon: Keeps the division finite.

    Raises:
        ArgumentError: A beta is not in [0, 1), or ``epsilon`` is negative.

    Example:
        >>> optimizer = Nadam(learning_rate=0.1)
        >>> params = {"w": jnp.array([1.0])}
        >>> state = optimizer.init(params)
        >>> params, state = optimizer.update({"w": jnp.array([5.0])}, state, params)
        >>> round(float(params["w"][0]), 4)
        0.8937

    Source: Dozat, *Incorporating Nesterov Momentum into Adam*, 2016.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        **options: Unpack[Options],
    ):
        super().__init__(learning_rate, **options)
        self.beta_1 = check_rate("Nadam", "beta_1", beta_1, below_one=True)
        self.beta_2 = check_rate("Nadam", "beta_2", beta_2, below_one=True)
        self.epsilon = check_number("Nadam", "epsilon", epsilon)

    def _momentum(self, step: Any) -> Any:
        return self.beta_1 * (1.0 - 0.5 * jnp.exp(step * math.log(0.96)))

    def transformation(self, learning_rate, count) -> optax.GradientTransformation:
        beta_1, beta_2 = self.beta_1, self.beta_2
        step = jnp.asarray(count, jnp.float32) + 1.0
        now, then = self._momentum(step), self._momentum(step + 1.0)
        correction = bias_correction(beta_2, count)

        def rule(product):
            old = learning_rate * then / (1.0 - product * then)
            new = learning_rate * (1.0 - now) / (1.0 - product)

            def init(p, path):
                return {"m": jnp.zeros_like(p), "v": jnp.zeros_like(p)}

            def update(g, p, path, m, v):
                m = beta_1 * m + (1.0 - beta_1) * g
                v = beta_2 * v + (1.0 - beta_2) * jnp.square(g)
                delta = (old * m + new * g) / (jnp.sqrt(v / correction) + self.epsilon)
                return -delta, {"m": m, "v": v}

            return per_parameter(init, update)

        def init(params):
            one = jnp.ones((), jnp.float32)
            return {"product": one, "moments": rule(one).init(params)}

        def update(updates, state, params=None):
            product = state["product"] * now
            deltas, moments = rule(product).update(updates, state["moments"], params)
            return deltas, {"product": product, "moments": moments}

        return optax.GradientTransformation(init, update)
