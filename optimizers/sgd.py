"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any, Unpack

import optax

from exburn.core.checks import check_rate, is_known
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.options import Options


class SGD(Optimizer):
    r"""Gradient descent with momentum, optionally Nesterov's.

    .. math:: v ← μ v − η g \qquad p ← p + v

    With Nesterov momentum the step is :math:`p ← p + μ v − η g`. The learning rate is
    inside of the velocity, so that steps of the past keep the rate that they had when
    it changes. In optax and PyTorch it is outside.

    Args:
        momentum: μ, from 0 to 1; 0 keeps no velocity.
        nesterov: Use Nesterov momentum.

    Raises:
        ArgumentError: ``momentum`` is not in [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> optimizer = SGD(learning_rate=0.1, momentum=0.9)
        >>> params = {"w": jnp.array([1.0])}
        >>> state = optimizer.init(params)
        >>> for _ in range(2):
        ...     params, state = optimizer.update({"w": jnp.ones(1)}, state, params)
        >>> round(float(params["w"][0]), 6)  # 1 − 0.1 · 1 − 0.1 · 1.9
        0.71

    Source: Sutskever et al., *On the Importance of Initialization and Momentum in Deep
    Learning*, 2013.
    """

    eight_bit_slots = {"trace": True}

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        **options: Unpack[Options],
    ):
        super().__init__(learning_rate, **options)
        self.momentum = check_rate("SGD", "momentum", momentum)
        self.nesterov = bool(nesterov)

    def transformation(self, learning_rate, count) -> optax.GradientTransformation:
        step = optax.scale_by_learning_rate(learning_rate)
        if is_known(self.momentum, 0):
            return step
        return optax.chain(step, optax.trace(self.momentum, self.nesterov))
