"""Sharpness-aware minimization."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Unpack

import jax
import jax.numpy as jnp

from exburn.core.checks import check_number, check_rate
from exburn.optimizers.contract.options import Options
from exburn.optimizers.contract.second_pass import SecondPass
from exburn.optimizers.sgd import SGD


class SAM(SecondPass):
    r"""SGD by the gradient at the worst place nearby, which leads to flat minima.

    .. math:: e = ρ \frac{g(p)}{‖g(p)‖} \qquad v ← μ v − η g(p + e) \qquad p ← p + v

    Adaptive, each entry has a neighbourhood of its own size:
    :math:`e = ρ p² g / ‖|p| g‖`. A step takes two gradients, and so about twice as
    long; statistics of normalizations are those of the first pass.

    Args:
        rho: ρ, the radius of the neighbourhood.
        adaptive: Whether the neighbourhood is scaled by the parameters (ASAM).
        momentum: μ, from 0 to 1.
        nesterov: Use Nesterov momentum.

    Raises:
        ArgumentError: A value is out of range; gradients are accumulated; or ``update``
            is called without the loss.

    Example:
        >>> optimizer = SAM(0.1, rho=0.5, momentum=0.0)
        >>> params = {"w": jnp.array([3.0])}
        >>> loss = lambda p: jnp.sum(p["w"] ** 2) / 2
        >>> state, grads = optimizer.init(params), jax.grad(loss)(params)
        >>> params, state = optimizer.update(grads, state, params, value_fn=loss)
        >>> round(float(params["w"][0]), 6)  # 3 − 0.1 · 3.5
        2.65

    Source: P. Foret et al., *Sharpness-Aware Minimization for Efficiently Improving
    Generalization*, 2021; J. Kwon et al., *ASAM*, 2021.
    """

    transformation = SGD.transformation

    def __init__(
        self,
        learning_rate: Any = 0.01,
        rho: float = 0.05,
        adaptive: bool = False,
        momentum: float = 0.9,
        nesterov: bool = False,
        **options: Unpack[Options],
    ):
        super().__init__(learning_rate, **options)
        self.rho = check_number("SAM", "rho", rho)
        self.adaptive = bool(adaptive)
        self.momentum = check_rate("SAM", "momentum", momentum)
        self.nesterov = bool(nesterov)

    def second_pass(
        self, grads: Any, opt_state: Mapping[str, Any], params: Any, loss: Callable
    ) -> tuple[Any, Mapping[str, Any]]:
        def of_size(gradient, parameter):
            gradient = gradient.astype(jnp.float32)
            return gradient * jnp.abs(parameter) if self.adaptive else gradient

        sized = jax.tree.map(of_size, grads, params)
        squares = sum(jnp.sum(jnp.abs(g) ** 2) for g in jax.tree.leaves(sized))
        scale = self.rho / jnp.maximum(jnp.sqrt(squares), 1e-12)

        def move(parameter, gradient):
            step = scale * gradient
            step = step * jnp.abs(parameter) if self.adaptive else step
            return (parameter + step).astype(parameter.dtype)

        return jax.grad(loss)(jax.tree.map(move, params, sized)), opt_state
