"""RMSprop."""

from __future__ import annotations

from typing import Any, Unpack

import jax.numpy as jnp
import optax

from exburn.core.checks import check_number, check_rate, is_known
from exburn.errors import ArgumentError
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.options import Options
from exburn.optimizers.contract.rules import per_parameter


class RMSprop(Optimizer):
    r"""Gradient descent divided by the root of a moving average of squared gradients.

    .. math:: v ← ρ v + (1 − ρ) g² \qquad p ← p − η \frac{g}{\sqrt{v + ε}}

    ``centered`` divides by the root of the variance, :math:`\sqrt{v − a² + ε}` with
    the mean gradient :math:`a ← ρ a + (1 − ρ) g`.

    Args:
        rho: ρ, decay of the averages.
        momentum: Momentum of the steps; 0 keeps no velocity.
        epsilon: ε, inside of the root.
        centered: Divide by the standard deviation.

    Raises:
        ArgumentError: ``rho`` or ``momentum`` is out of range.

    Example:
        >>> optimizer = RMSprop(learning_rate=0.1, rho=0.75)
        >>> params = {"w": jnp.array([1.0])}
        >>> state = optimizer.init(params)
        >>> params, state = optimizer.update({"w": jnp.array([5.0])}, state, params)
        >>> round(float(params["w"][0]), 6)  # 1 − 0.1 · 5 / √(0.25 · 25)
        0.8

    Source: Hinton, *Neural Networks for Machine Learning*, lecture 6e, 2012; Graves,
    *Generating Sequences With Recurrent Neural Networks*, 2013 (centered).
    """

    eight_bit_slots = {"nu": False, "trace": True}

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-7,
        centered: bool = False,
        **options: Unpack[Options],
    ):
        super().__init__(learning_rate, **options)
        self.rho = check_rate("RMSprop", "rho", rho, below_one=True)
        self.momentum = check_rate("RMSprop", "momentum", momentum)
        self.epsilon = check_number("RMSprop", "epsilon", epsilon)
        self.centered = bool(centered)
        if self.centered and self.state_bits == 8:
            raise ArgumentError(
                "RMSprop",
                "centered=True takes the difference of two moments, which 8 bits of "
                "each do not tell",
                hint="Leave out state_bits=8, or centered=True.",
            )

    def transformation(self, learning_rate, count) -> optax.GradientTransformation:
        if not self.centered:
            return optax.rmsprop(
                learning_rate,
                self.rho,
                self.epsilon,
                momentum=None if is_known(self.momentum, 0) else self.momentum,
            )
        rho = self.rho

        def init(p, path):
            plain = is_known(self.momentum, 0)
            slots = ("v", "mean") if plain else ("v", "mean", "step")
            return {slot: jnp.zeros_like(p) for slot in slots}

        def update(g, p, path, v, mean, step=None):
            v = rho * v + (1.0 - rho) * jnp.square(g)
            mean = rho * mean + (1.0 - rho) * g
            # Rounding can make the difference negative.
            variance = jnp.maximum(v - jnp.square(mean), 0.0)
            delta = learning_rate * g / jnp.sqrt(variance + self.epsilon)
            if step is None:
                return -delta, {"v": v, "mean": mean}
            step = self.momentum * step + delta
            return -step, {"v": v, "mean": mean, "step": step}

        return per_parameter(init, update)
