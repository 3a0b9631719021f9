"""Follow the regularized leader."""

from __future__ import annotations

import math
from typing import Any, Unpack

import jax.numpy as jnp
import optax

from exburn.core.checks import check_number
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.options import Options
from exburn.optimizers.contract.rules import per_parameter


class Ftrl(Optimizer):
    r"""The parameters that would have been best so far, with L1 and L2 penalties.

    .. math::
        n' = n + g² \qquad
        z ← z + g + 2 λ_s p − \frac{n'^{-k} − n^{-k}}{η} p \\
        p ← \frac{\mathrm{clip}(z, −λ_1, λ_1) − z}{n'^{-k} / η + 2 λ_2 + β / η}

    Args:
        learning_rate: A number > 0, a schedule, or a function of the step; the rule
            divides by it, so a schedule or warmup must not begin or end at 0.
        learning_rate_power: k ≤ 0; 0 for a learning rate that does not fall.
        initial_accumulator_value: n before the first update.
        l1_regularization_strength: λ₁; keeps parameters at exactly zero.
        l2_regularization_strength: λ₂.
        l2_shrinkage_regularization_strength: λₛ, a penalty on the size only.
        beta: β.

    Raises:
        ArgumentError: A strength is negative, the power positive, or the rate 0.

    Example:
        >>> optimizer = Ftrl(0.5, l1_regularization_strength=10.0)
        >>> params = {"w": jnp.array([1.0])}
        >>> state = optimizer.init(params)
        >>> params, state = optimizer.update({"w": jnp.array([5.0])}, state, params)
        >>> abs(float(params["w"][0])) < 1e-6
        True

    Source: McMahan et al., *Ad Click Prediction: a View from the Trenches*, 2013.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        l2_shrinkage_regularization_strength: float = 0.0,
        beta: float = 0.0,
        **options: Unpack[Options],
    ):
        super().__init__(learning_rate, **options)
        self.learning_rate_power = check_number(
            "Ftrl", "learning_rate_power", learning_rate_power, low=-math.inf, high=0.0
        )
        self.initial_accumulator_value = check_number(
            "Ftrl", "initial_accumulator_value", initial_accumulator_value
        )
        self.l1_regularization_strength = check_number(
            "Ftrl", "l1_regularization_strength", l1_regularization_strength
        )
        self.l2_regularization_strength = check_number(
            "Ftrl", "l2_regularization_strength", l2_regularization_strength
        )
        self.l2_shrinkage_regularization_strength = check_number(
            "Ftrl",
            "l2_shrinkage_regularization_strength",
            l2_shrinkage_regularization_strength,
        )
        self.beta = check_number("Ftrl", "beta", beta)

    def _check_rate(self, value: Any) -> Any:
        value = super()._check_rate(value)
        if callable(value):
            return value
        return check_number("Ftrl", "learning_rate", value, open_low=True)

    def transformation(self, learning_rate, count) -> optax.GradientTransformation:
        l1, l2 = self.l1_regularization_strength, self.l2_regularization_strength
        shrinkage = 2.0 * self.l2_shrinkage_regularization_strength

        def power(n):
            return n**-self.learning_rate_power

        def init(p, path):
            sums = jnp.full_like(p, self.initial_accumulator_value)
            return {"n": sums, "z": jnp.zeros_like(p)}

        def update(g, p, path, n, z):
            n_new = n + jnp.square(g)
            z = z + g + shrinkage * p
            z = z - (power(n_new) - power(n)) / learning_rate * p
            quadratic = (power(n_new) + self.beta) / learning_rate + 2.0 * l2
            leader = (jnp.clip(z, -l1, l1) - z) / quadratic
            return leader - p, {"n": n_new, "z": z}

        return per_parameter(init, update)
