"""Schedule-free AdamW."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import optax

from exburn.core.checks import check_count, check_number, check_rate, is_known
from exburn.optimizers.contract.complex_parameters import join, split
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.options import Options
from exburn.optimizers.contract.rules import bias_correction, per_parameter


class ScheduleFreeAdamW(Optimizer):
    r"""Adam whose parameters are averaged over all steps, so that no decay is needed.

    z takes the steps, x is the mean of all z, and the gradient is taken between them,
    at the parameters y:

    .. math::
        z ← z − η \frac{g}{\sqrt{v / (1 − β_2^t)} + ε} \qquad
        x ← (1 − \tfrac{1}{t}) x + \tfrac{1}{t} z \qquad
        y = β_1 x + (1 − β_1) z

    Args:
        beta_1: Share of the mean in the parameters, in (0, 1].
        beta_2: Decay of the mean of squared gradients.
        epsilon: Keeps the division finite.
        warmup_steps: Updates over which the learning rate rises on a line.

    Raises:
        ArgumentError: A beta is out of range.

    Example:
        >>> optimizer = ScheduleFreeAdamW(learning_rate=0.1)
        >>> params = {"w": jnp.array([1.0])}
        >>> state = optimizer.init(params)
        >>> params, state = optimizer.update({"w": jnp.array([5.0])}, state, params)
        >>> round(float(params["w"][0]), 6)
        0.9

    Source: Defazio et al., *The Road Less Scheduled*, 2024.
    """

    def __init__(
        self,
        learning_rate: Any = 0.0025,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        warmup_steps: int = 0,
        **options: Unpack[Options],
    ):
        super().__init__(learning_rate, **options)
        op = "ScheduleFreeAdamW"
        self.beta_1 = check_number(op, "beta_1", beta_1, high=1.0, open_low=True)
        self.beta_2 = check_rate(op, "beta_2", beta_2, below_one=True)
        self.epsilon = check_number(op, "epsilon", epsilon)
        self.warmup_steps = check_count(
            op, "warmup_steps", warmup_steps, 0, floats=True
        )

    def transformation(self, learning_rate, count) -> optax.GradientTransformation:
        beta_1, beta_2 = self.beta_1, self.beta_2
        step = jnp.asarray(count, jnp.float32) + 1.0
        weight = 1.0 / step
        correction = bias_correction(beta_2, count)
        if not is_known(self.warmup_steps, 0):
            warm = jnp.minimum(step / self.warmup_steps, 1.0)
            learning_rate = learning_rate * warm

        def init(p, path):
            return {"z": jnp.copy(p), "v": jnp.zeros_like(p)}

        def update(g, p, path, z, v):
            v = beta_2 * v + (1.0 - beta_2) * jnp.square(g)
            x = (p - (1.0 - beta_1) * z) / beta_1
            z = z - learning_rate * g / (jnp.sqrt(v / correction) + self.epsilon)
            x = (1.0 - weight) * x + weight * z
            return (1.0 - beta_1) * z + beta_1 * x - p, {"z": z, "v": v}

        return per_parameter(init, update)

    def averaged_params(self, opt_state: Mapping[str, Any], params: Any) -> Any:
        """x, the mean of all steps: what the paper evaluates and keeps.

        Example:
            >>> optimizer = ScheduleFreeAdamW(0.1)
            >>> params = {"w": jnp.array([1.0])}
            >>> float(optimizer.averaged_params(optimizer.init(params), params)["w"][0])
            1.0
        """

        def one(p, slots):
            x = (p - (1.0 - self.beta_1) * slots["z"]) / self.beta_1
            return x.astype(p.dtype)

        return join(jax.tree.map(one, split(params), opt_state["inner"]))
