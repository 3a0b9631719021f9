"""Adagrad."""

from __future__ import annotations

from typing import Any, Unpack

import jax.numpy as jnp
import optax

from exburn.core.checks import check_number
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.options import Options
from exburn.optimizers.contract.rules import per_parameter


class Adagrad(Optimizer):
    r"""Gradient descent divided by the root of the sum of all squared gradients.

    .. math:: s ← s + g² \qquad p ← p − η \frac{g}{\sqrt{s + ε}}

    Args:
        initial_accumulator_value: s before the first update.
        epsilon: Keeps the division finite.

    Raises:
        ArgumentError: A value is negative.

    Example:
        >>> optimizer = Adagrad(learning_rate=0.1, initial_accumulator_value=0.0)
        >>> params = {"w": jnp.array([1.0])}
        >>> state = optimizer.init(params)
        >>> params, state = optimizer.update({"w": jnp.array([5.0])}, state, params)
        >>> round(float(params["w"][0]), 6)
        0.9

    Source: Duchi, Hazan & Singer, *Adaptive Subgradient Methods*, 2011.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        **options: Unpack[Options],
    ):
        super().__init__(learning_rate, **options)
        self.initial_accumulator_value = check_number(
            "Adagrad", "initial_accumulator_value", initial_accumulator_value
        )
        self.epsilon = check_number("Adagrad", "epsilon", epsilon)

    def transformation(self, learning_rate, count) -> optax.GradientTransformation:
        def init(p, path):
            return {"sum": jnp.full_like(p, self.initial_accumulator_value)}

        def update(g, p, path, sum):
            sum = sum + jnp.square(g)
            return -learning_rate * g / jnp.sqrt(sum + self.epsilon), {"sum": sum}

        return per_parameter(init, update)
