"""Adamax."""

from __future__ import annotations

from typing import Any, Unpack

import jax.numpy as jnp
import optax

from exburn.core.checks import check_number, check_rate
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.options import Options
from exburn.optimizers.contract.rules import bias_correction, per_parameter


class Adamax(Optimizer):
    r"""Adam with the largest gradient instead of the second moment.

    .. math::
        m ← β_1 m + (1 − β_1) g \qquad u ← \max(β_2 u, |g|) \qquad
        p ← p − \frac{η}{1 − β_1^t} \frac{m}{u + ε}

    Args:
        beta_1: Decay of the mean of gradients.
        beta_2: Decay of the largest gradient.
        epsilon: Keeps the division finite.

    Raises:
        ArgumentError: A beta is not in [0, 1), or ``epsilon`` is negative.

    Example:
        >>> optimizer = Adamax(learning_rate=0.1)
        >>> params = {"w": jnp.array([1.0])}
        >>> state = optimizer.init(params)
        >>> params, state = optimizer.update({"w": jnp.array([5.0])}, state, params)
        >>> round(float(params["w"][0]), 6)
        0.9

    Source: Kingma & Ba, *Adam: A Method for Stochastic Optimization*, 2015, section 7.
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
        self.beta_1 = check_rate("Adamax", "beta_1", beta_1, below_one=True)
        self.beta_2 = check_rate("Adamax", "beta_2", beta_2, below_one=True)
        self.epsilon = check_number("Adamax", "epsilon", epsilon)

    def transformation(self, learning_rate, count) -> optax.GradientTransformation:
        beta_1, beta_2, epsilon = self.beta_1, self.beta_2, self.epsilon
        size = learning_rate / bias_correction(beta_1, count)

        def init(p, path):
            return {"m": jnp.zeros_like(p), "u": jnp.zeros_like(p)}

        def update(g, p, path, m, u):
            m = beta_1 * m + (1.0 - beta_1) * g
            u = jnp.maximum(beta_2 * u, jnp.abs(g))
            return -size * m / (u + epsilon), {"m": m, "u": u}

        return per_parameter(init, update)
