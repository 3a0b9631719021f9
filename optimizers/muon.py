"""Muon."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Unpack

import jax.numpy as jnp
import optax

from exburn.core.checks import check_count, check_number, check_optional, check_rate
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.options import DecayedOptions
from exburn.optimizers.contract.rules import bias_correction, per_parameter


class Muon(Optimizer):
    r"""Momentum made orthogonal: every direction of a matrix moves equally far.

    .. math::
        m ← μ m + g \qquad x_0 = \frac{g + μ m}{‖g + μ m‖_F} \qquad
        x_{i+1} = a x_i + (b x_i x_i^T + c (x_i x_i^T)²) x_i \\
        p ← p − η \, r \sqrt{\max(\text{rows}, \text{columns})} \; x_n

    Only matrices are updated so; parameters of another rank, embeddings and excluded
    layers are updated by AdamW.

    Args:
        adam_beta_1: Adam's decay of the mean of gradients.
        adam_beta_2: Adam's decay of the mean of squared gradients.
        adam_weight_decay: Weight decay of the parameters that Adam updates.
        epsilon: Adam's ε (the paper's ε̂, as in Keras).
        weight_decay: Weight decay of the matrices.
        exclude_layers: Regular expressions; parameters whose path has a match are
            updated by Adam.
        exclude_embeddings: Update parameters with "embedding" in their path by Adam.
        muon_a: a of the iteration.
        muon_b: b of the iteration.
        muon_c: c of the iteration.
        adam_lr_ratio: Adam's learning rate, relative to the matrices'.
        momentum: μ.
        ns_steps: n, number of Newton–Schulz iterations.
        nesterov: Use Nesterov momentum, as in the formula; otherwise :math:`x_0 ∝ m`.
        rms_rate: r, the root mean square of a step; None for steps without scaling.

    Raises:
        ArgumentError: A value is out of range.

    Example:
        >>> optimizer = Muon(learning_rate=0.1, weight_decay=None)
        >>> params = {"kernel": jnp.eye(2), "bias": jnp.ones(2)}
        >>> state = optimizer.init(params)
        >>> sorted(state["inner"]["kernel"]), sorted(state["inner"]["bias"])
        (['momentum'], ['momentum', 'velocity'])

    Source: Jordan et al., *Muon: An Optimizer for Hidden Layers*, 2024; Liu et al.,
    *Muon is Scalable for LLM Training*, 2025 (step size and weight decay).
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        adam_beta_1: float = 0.9,
        adam_beta_2: float = 0.999,
        adam_weight_decay: float | None = 0.004,
        epsilon: float = 1e-7,
        weight_decay: float | None = 0.004,
        exclude_layers: Sequence[str] | None = None,
        exclude_embeddings: bool = True,
        muon_a: float = 3.4445,
        muon_b: float = -4.775,
        muon_c: float = 2.0315,
        adam_lr_ratio: float = 1.0,
        momentum: float = 0.95,
        ns_steps: int = 5,
        nesterov: bool = True,
        rms_rate: float | None = 0.2,
        **options: Unpack[DecayedOptions],
    ):
        super().__init__(learning_rate, weight_decay=weight_decay, **options)
        op = "Muon"
        self.adam_beta_1 = check_rate(op, "adam_beta_1", adam_beta_1, below_one=True)
        self.adam_beta_2 = check_rate(op, "adam_beta_2", adam_beta_2, below_one=True)
        self.adam_weight_decay = check_optional(
            check_number, op, "adam_weight_decay", adam_weight_decay
        )
        self.epsilon = check_number(op, "epsilon", epsilon)
        self.exclude_layers = list(exclude_layers or ())
        self.exclude_embeddings = bool(exclude_embeddings)
        self.muon_a = check_number(op, "muon_a", muon_a, low=-math.inf)
        self.muon_b = check_number(op, "muon_b", muon_b, low=-math.inf)
        self.muon_c = check_number(op, "muon_c", muon_c, low=-math.inf)
        self.adam_lr_ratio = check_number(op, "adam_lr_ratio", adam_lr_ratio)
        self.momentum = check_rate(op, "momentum", momentum)
        self.ns_steps = check_count(op, "ns_steps", ns_steps, 0, floats=True)
        self.nesterov = bool(nesterov)
        self.rms_rate = check_optional(check_number, op, "rms_rate", rms_rate)

    def _uses_adam(self, path: str, rank: int) -> bool:
        if rank != 2 or (self.exclude_embeddings and "embedding" in path.lower()):
            return True
        return any(re.search(pattern, path) for pattern in self.exclude_layers)

    def decay_of(self, path: str, shape: tuple[int, ...]) -> float | None:
        if self._uses_adam(path, len(shape)):
            return self.adam_weight_decay
        return self.weight_decay

    def transformation(self, learning_rate, count) -> optax.GradientTransformation:
        beta_1, beta_2, mu = self.adam_beta_1, self.adam_beta_2, self.momentum
        adam_size = learning_rate * self.adam_lr_ratio
        adam_size = adam_size * jnp.sqrt(bias_correction(beta_2, count))
        adam_size = adam_size / bias_correction(beta_1, count)

        def init(p, path):
            if self._uses_adam(path, p.ndim):
                return {"momentum": jnp.zeros_like(p), "velocity": jnp.zeros_like(p)}
            return {"momentum": jnp.zeros_like(p)}

        def update(g, p, path, momentum, velocity=None):
            if velocity is not None:
                momentum = beta_1 * momentum + (1.0 - beta_1) * g
                velocity = beta_2 * velocity + (1.0 - beta_2) * jnp.square(g)
                delta = -adam_size * momentum / (jnp.sqrt(velocity) + self.epsilon)
                return delta, {"momentum": momentum, "velocity": velocity}
            momentum = mu * momentum + g
            step = self._orthogonal(g + mu * momentum if self.nesterov else momentum)
            size = learning_rate
            if self.rms_rate is not None:
                size = size * (math.sqrt(max(p.shape)) * self.rms_rate)
            return -size * step, {"momentum": momentum}

        return per_parameter(init, update)

    def _orthogonal(self, x: Any) -> Any:
        """Nearly the orthogonal matrix closest to ``x``: [rows, columns] → the same."""
        tall = x.shape[0] > x.shape[1]
        x = x.T if tall else x  # the products below are [short, short]
        x = x / (jnp.linalg.norm(x) + 1e-7)
        for _ in range(self.ns_steps):
            gram = x @ x.T
            x = self.muon_a * x + (self.muon_b * gram + self.muon_c * gram @ gram) @ x
        return x.T if tall else x
