"""Lion."""

from __future__ import annotations

from typing import Any, Unpack

import optax

from exburn.core.checks import check_number, check_rate
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.options import Options


class Lion(Optimizer):
    r"""Steps of one size: the sign of an average of the gradient and its momentum.

    .. math:: p ← p − η \, \mathrm{sign}(β_1 m + (1 − β_1) g) \qquad
        m ← β_2 m + (1 − β_2) g

    Args:
        learning_rate: A number ≥ 0, a schedule, or a function of the step; 3 to 10
            times smaller than for Adam.
        beta_1: Share of the momentum in the step, in (0, 1]; 0 would be sign descent.
        beta_2: Decay of the momentum.

    Raises:
        ArgumentError: A beta is out of range.

    Example:
        >>> import jax.numpy as jnp
        >>> optimizer = Lion(learning_rate=0.1)
        >>> params = {"w": jnp.array([1.0])}
        >>> state = optimizer.init(params)
        >>> params, state = optimizer.update({"w": jnp.array([5.0])}, state, params)
        >>> round(float(params["w"][0]), 6)
        0.9

    Source: Chen et al., *Symbolic Discovery of Optimization Algorithms*, 2023.
    """

    eight_bit_slots = {"mu": True}

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.99,
        **options: Unpack[Options],
    ):
        super().__init__(learning_rate, **options)
        self.beta_1 = check_number("Lion", "beta_1", beta_1, high=1.0, open_low=True)
        self.beta_2 = check_rate("Lion", "beta_2", beta_2)

    def transformation(self, learning_rate, count) -> optax.GradientTransformation:
        return optax.chain(
            optax.scale_by_lion(self.beta_1, self.beta_2),
            optax.scale_by_learning_rate(learning_rate),
        )
