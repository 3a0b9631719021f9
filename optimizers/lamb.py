"""LAMB."""

from __future__ import annotations

from typing import Any, Unpack

import optax

from exburn.core.checks import check_number, check_rate
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.options import Options


class Lamb(Optimizer):
    r"""Adam for very large batches: every parameter's step has the parameter's norm.

    .. math:: p ← p − η \frac{‖p‖}{‖u‖} u, \qquad
        u = \frac{m / (1 − β_1^t)}{\sqrt{v / (1 − β_2^t)} + ε}

    The ratio is 1 where a norm is zero.

    Args:
        beta_1: Decay of the mean of gradients.
        beta_2: Decay of the mean of squared gradients.
        epsilon: Keeps the division finite.

    Raises:
        ArgumentError: A beta is not in [0, 1), or ``epsilon`` is negative.

    Example:
        >>> import jax.numpy as jnp
        >>> optimizer = Lamb(learning_rate=0.1)
        >>> params = {"w": jnp.array([2.0])}
        >>> state = optimizer.init(params)
        >>> params, state = optimizer.update({"w": jnp.array([5.0])}, state, params)
        >>> round(float(params["w"][0]), 6)
        1.8

    Source: You et al., *Large Batch Optimization for Deep Learning: Training BERT in 76
    Minutes*, 2020.
    """

    eight_bit_slots = {"mu": True, "nu": False}

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        **options: Unpack[Options],
    ):
        super().__init__(learning_rate, **options)
        self.beta_1 = check_rate("Lamb", "beta_1", beta_1, below_one=True)
        self.beta_2 = check_rate("Lamb", "beta_2", beta_2, below_one=True)
        self.epsilon = check_number("Lamb", "epsilon", epsilon)

    def transformation(self, learning_rate, count) -> optax.GradientTransformation:
        return optax.chain(
            optax.scale_by_adam(self.beta_1, self.beta_2, self.epsilon),
            optax.scale_by_trust_ratio(),
            optax.scale_by_learning_rate(learning_rate),
        )
