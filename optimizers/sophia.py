"""Sophia."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import optax

from exburn.core.checks import check_count, check_number, check_rate
from exburn.core.random_keys import path_hash
from exburn.optimizers.contract.options import Options
from exburn.optimizers.contract.rules import per_parameter
from exburn.optimizers.contract.second_pass import SecondPass
from exburn.optimizers.contract.trees import path_of


class Sophia(SecondPass):
    r"""Momentum divided by the diagonal of the Hessian, each entry clipped.

    Every k updates the diagonal is estimated by one product with a random vector,
    :math:`\hat h = u ⊙ H u`, and averaged.

    .. math::
        m ← β_1 m + (1 − β_1) g \qquad h ← β_2 h + (1 − β_2) \hat h \qquad
        p ← p − η \, \mathrm{clip}\left(\frac{m}{\max(γ h, ε)}, 1\right)

    Args:
        beta_1: Decay of the mean of gradients.
        beta_2: Decay of the mean of the diagonal.
        gamma: γ: how many entries are clipped; fewer with a larger one.
        epsilon: Least value of the divisor.
        update_interval: k.
        seed: Of the random vectors.

    Raises:
        ArgumentError: A value is out of range; gradients are accumulated; or ``update``
            is called without the loss.

    Example:
        >>> optimizer = Sophia(0.1, beta_1=0.0, beta_2=0.0, gamma=1.0)
        >>> params = {"w": jnp.array([0.5, 3.0])}
        >>> loss = lambda p: p["w"][0] ** 2 + p["w"][1] ** 2 / 2
        >>> state, grads = optimizer.init(params), jax.grad(loss)(params)
        >>> params, state = optimizer.update(grads, state, params, value_fn=loss)
        >>> [round(float(value), 4) for value in params["w"]]  # by 1/2, and by clip(3)
        [0.45, 2.9]

    Source: H. Liu et al., *Sophia: A Scalable Stochastic Second-order Optimizer for
    Language Model Pre-training*, 2023 (Sophia-H).
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.96,
        beta_2: float = 0.99,
        gamma: float = 0.01,
        epsilon: float = 1e-12,
        update_interval: int = 10,
        seed: int = 0,
        **options: Unpack[Options],
    ):
        super().__init__(learning_rate, **options)
        op = "Sophia"
        self.beta_1 = check_rate(op, "beta_1", beta_1, below_one=True)
        self.beta_2 = check_rate(op, "beta_2", beta_2, below_one=True)
        self.gamma = check_number(op, "gamma", gamma, open_low=True)
        self.epsilon = check_number(op, "epsilon", epsilon, open_low=True)
        self.update_interval = check_count(op, "update_interval", update_interval)
        self.seed = check_count(op, "seed", seed, 0)

    def second_pass(
        self, grads: Any, opt_state: Mapping[str, Any], params: Any, loss: Callable
    ) -> tuple[Any, Mapping[str, Any]]:
        count, inner = opt_state["rate"]["count"], opt_state["inner"]
        key = jax.random.fold_in(jax.random.key(self.seed), count)
        share = (1.0 - self.beta_2) / (self.loss_scale_factor or 1.0)

        def signs(path, parameter):
            own = jax.random.fold_in(key, path_hash(path_of(path)))
            return jax.random.rademacher(own, parameter.shape, parameter.dtype)

        def estimate():
            vector = jax.tree_util.tree_map_with_path(signs, params)
            bent = jax.jvp(jax.grad(loss), (params,), (vector,))[1]

            def average(v, b, slots):
                new = share * (v * b).astype(jnp.float32)
                return slots | {"hessian": self.beta_2 * slots["hessian"] + new}

            return jax.tree.map(average, vector, bent, inner)

        due = count % self.update_interval == 0
        inner = jax.lax.cond(due, estimate, lambda: inner)
        return grads, {**opt_state, "inner": inner}

    def transformation(self, learning_rate, count) -> optax.GradientTransformation:
        def init(p, path):
            return {"momentum": jnp.zeros_like(p), "hessian": jnp.zeros_like(p)}

        def update(g, p, path, momentum, hessian):
            momentum = self.beta_1 * momentum + (1.0 - self.beta_1) * g
            divisor = jnp.maximum(self.gamma * hessian, self.epsilon)
            step = jnp.clip(momentum / divisor, -1.0, 1.0)
            return -learning_rate * step, {"momentum": momentum, "hessian": hessian}

        return per_parameter(init, update)
