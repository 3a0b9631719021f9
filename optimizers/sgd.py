"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any, Unpack

import optax

from exburn.optimizers.arguments import real
from exburn.optimizers.optimizer import Optimizer
from exburn.optimizers.options import Options

__all__ = ["SGD"]


class SGD(Optimizer):
    r"""Gradient descent with momentum, optionally Nesterov's.

    .. math:: v ← μ v + g \qquad p ← p − η v

    With Nesterov momentum the step is :math:`p ← p − η (μ v + g)`. The learning rate is
    outside of the velocity, as in ExBurn, optax and PyTorch; Keras keeps it inside,
    which differs only while the learning rate changes.

    Args:
        learning_rate: A number ≥ 0, a schedule, or a function of the step.
        momentum: μ, from 0 to 1. Keras' default is 0, ExBurn's is 0.9.
        nesterov: Use Nesterov momentum.
        **options: See :class:`Optimizer`.

    Shape:
        params, grads: trees of equal structure and shapes, any rank → the same.

    Raises:
        ArgumentError: ``momentum`` is not in [0, 1].

    Example:
        >>> import jax.numpy as jnp
        >>> optimizer = SGD(learning_rate=0.1)
        >>> params = {"w": jnp.array([1.0])}
        >>> state = optimizer.init(params)
        >>> for _ in range(2):
        ...     params, state = optimizer.update({"w": jnp.ones(1)}, state, params)
        >>> round(float(params["w"][0]), 6)  # 1 − 0.1 · 1 − 0.1 · 1.9
        0.71

    Source: Sutskever et al., *On the Importance of Initialization and Momentum in Deep
    Learning*, 2013.
    """

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.9,
        nesterov: bool = False,
        **options: Unpack[Options],
    ):
        super().__init__(learning_rate, **options)
        self.momentum = real("SGD", "momentum", momentum, high=1.0)
        self.nesterov = bool(nesterov)

    def transformation(self, learning_rate, count) -> optax.GradientTransformation:
        momentum = self.momentum or None  # optax keeps no velocity for None
        return optax.sgd(learning_rate, momentum, self.nesterov)
