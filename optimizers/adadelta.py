"""Adadelta."""

from __future__ import annotations

from typing import Any, Unpack

import optax

from exburn.core.checks import check_number, check_rate
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.options import Options


class Adadelta(Optimizer):
    r"""Steps in the unit of the parameters, from averages of gradients and steps.

    .. math::
        a ← ρ a + (1 − ρ) g² \qquad δ = \frac{\sqrt{d + ε}}{\sqrt{a + ε}} g \qquad
        d ← ρ d + (1 − ρ) δ² \qquad p ← p − η δ

    Args:
        learning_rate: A number ≥ 0, a schedule, or a function of the step; the paper's
            algorithm has 1.0, Keras' default is 0.001.
        rho: ρ, decay of the averages.
        epsilon: ε.

    Raises:
        ArgumentError: ``rho`` is not in [0, 1), or ``epsilon`` is negative.

    Example:
        >>> import jax.numpy as jnp
        >>> optimizer = Adadelta(learning_rate=1.0, rho=0.75, epsilon=1e-4)
        >>> params = {"w": jnp.array([1.0])}
        >>> state = optimizer.init(params)
        >>> params, state = optimizer.update({"w": jnp.array([5.0])}, state, params)
        >>> round(float(params["w"][0]), 4)  # 1 − √1e-4 · 5 / √(0.25 · 25)
        0.98

    Source: Zeiler, *ADADELTA: An Adaptive Learning Rate Method*, 2012.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.95,
        epsilon: float = 1e-7,
        **options: Unpack[Options],
    ):
        super().__init__(learning_rate, **options)
        self.rho = check_rate("Adadelta", "rho", rho, below_one=True)
        self.epsilon = check_number("Adadelta", "epsilon", epsilon)

    def transformation(self, learning_rate, count) -> optax.GradientTransformation:
        return optax.chain(
            optax.scale_by_adadelta(self.rho, self.epsilon),
            optax.scale_by_learning_rate(learning_rate),
        )
