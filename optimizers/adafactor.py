"""Adafactor."""

from __future__ import annotations

import math
from typing import Any, Unpack

import jax.numpy as jnp
import optax

from exburn.core.checks import check_number
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.options import Options
from exburn.optimizers.contract.rules import per_parameter


class Adafactor(Optimizer):
    r"""Adaptive steps whose second moments take one row and one column of memory.

    Of a matrix (the last two axes) only the means of squared gradients over rows and
    over columns are kept, :math:`\hat v = r c^T / \bar r`. With
    :math:`β_t = 1 − t^{\text{beta\_2\_decay}}` as their decay and
    :math:`u = g / \sqrt{\hat v}`,

    .. math::
        p ← p − \max(ε_2, \mathrm{rms}(p)) \, ρ_t
            \, \frac{u}{\max(1, \mathrm{rms}(u)/d)}

    Args:
        beta_2_decay: Exponent of the decay.
        epsilon_1: Added to squared gradients.
        epsilon_2: Smallest size of a parameter that scales its steps.
        clip_threshold: d, the largest root mean square of a step.
        relative_step: Keras' argument, which changes nothing, as in Keras:
            :math:`ρ_t = \min(η, 1/\sqrt{t})` in any case.

    Raises:
        ArgumentError: A value is out of range.

    Example:
        >>> optimizer = Adafactor(learning_rate=0.5)
        >>> params = {"w": jnp.ones((4, 6))}
        >>> state = optimizer.init(params)
        >>> {name: slot.shape for name, slot in state["inner"]["w"].items()}
        {'columns': (6,), 'rows': (4,)}
        >>> params, state = optimizer.update({"w": jnp.ones((4, 6))}, state, params)
        >>> round(float(params["w"][0, 0]), 6)
        0.5

    Source: Shazeer & Stern, *Adafactor: Adaptive Learning Rates with Sublinear Memory
    Cost*, 2018.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_2_decay: float = -0.8,
        epsilon_1: float = 1e-30,
        epsilon_2: float = 1e-3,
        clip_threshold: float = 1.0,
        relative_step: bool = True,
        **options: Unpack[Options],
    ):
        super().__init__(learning_rate, **options)
        op = "Adafactor"
        self.beta_2_decay = check_number(
            op, "beta_2_decay", beta_2_decay, low=-math.inf, high=0.0
        )
        self.epsilon_1 = check_number(op, "epsilon_1", epsilon_1)
        self.epsilon_2 = check_number(op, "epsilon_2", epsilon_2)
        self.clip_threshold = check_number(
            op, "clip_threshold", clip_threshold, open_low=True
        )
        self.relative_step = bool(relative_step)

    def transformation(self, learning_rate, count) -> optax.GradientTransformation:
        step = jnp.asarray(count, jnp.float32) + 1.0
        rho = jnp.minimum(learning_rate, 1.0 / jnp.sqrt(step))
        new = step**self.beta_2_decay  # 1 − β_t
        old = 1.0 - new

        def init(p, path):
            if p.ndim < 2:
                return {"v": jnp.zeros_like(p)}
            rows, columns = p.shape[:-1], (*p.shape[:-2], p.shape[-1])
            return {
                "rows": jnp.zeros(rows, p.dtype),
                "columns": jnp.zeros(columns, p.dtype),
            }

        def update(g, p, path, **slots):
            square = jnp.square(g) + self.epsilon_1
            if p.ndim < 2:
                v = old * slots["v"] + new * square
                slots = {"v": v}
            else:
                rows = old * slots["rows"] + new * jnp.mean(square, axis=-1)
                columns = old * slots["columns"] + new * jnp.mean(square, axis=-2)
                slots = {"rows": rows, "columns": columns}
                share = rows / jnp.mean(rows, axis=-1, keepdims=True)
                v = share[..., :, None] * columns[..., None, :]  # [..., rows, columns]
            u = g / jnp.sqrt(v)
            size = jnp.maximum(self.epsilon_2, _rms(p)) * rho
            return -size * u / jnp.maximum(1.0, _rms(u) / self.clip_threshold), slots

        return per_parameter(init, update)


def _rms(x: Any) -> Any:
    return jnp.sqrt(jnp.mean(jnp.square(x)))
