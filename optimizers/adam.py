"""Adam, and Adam with decoupled weight decay."""

from __future__ import annotations

from typing import Any, Unpack

import jax.numpy as jnp
import optax
from jax import lax
from jax.core import Tracer

from exburn.core.checks import check_number, check_rate
from exburn.errors import ArgumentError
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.options import DecayedOptions, Options
from exburn.optimizers.contract.rules import bias_correction, per_parameter
from exburn.runtime.cached_trace import traced_once


def adam_rule(
    learning_rate: Any,
    count: Any,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    amsgrad: bool = False,
) -> optax.GradientTransformation:
    r"""Adam's update as an optax transformation without a counter of its own.

    The bias corrections are two scalars in front of the step, which therefore holds the
    paper's :math:`\hat ε`, as Keras' does; ``optax.adam`` divides every element.

    Args:
        learning_rate: Scalar.
        count: int32 scalar, the number of updates before this one.
        beta_1: Decay of the mean of gradients.
        beta_2: Decay of the mean of squared gradients.
        epsilon: Added to the root of the second moment.
        amsgrad: Use the largest second moment seen so far.

    Example:
        >>> rule = adam_rule(0.1, jnp.int32(0), 0.9, 0.999, 1e-7)
        >>> params = {"w": jnp.array([1.0])}
        >>> updates, _ = rule.update({"w": jnp.array([5.0])}, rule.init(params), params)
        >>> round(float(updates["w"][0]), 6)
        -0.1
    """
    root = jnp.sqrt(bias_correction(beta_2, count))
    size = -learning_rate * root / bias_correction(beta_1, count)

    def init(p, path):
        slots = ("m", "v", "v_max") if amsgrad else ("m", "v")
        return {slot: jnp.zeros_like(p) for slot in slots}

    def update(g, p, path, m, v, v_max=None):
        return _adapt(g, m, v, v_max, size, beta_1, beta_2, epsilon)

    return per_parameter(init, update)


def _adapt(g, m, v, v_max, size, *options):
    """The rule for one parameter: what is added to it, and the new slots."""
    if any(isinstance(option, Tracer) for option in options):
        return _direction(g, m, v, v_max, size, *options)
    return _adapted_by_numbers(g, m, v, v_max, size, *options)


def _direction(g, m, v, v_max, size, beta_1, beta_2, epsilon):
    """In lax, which is traced in a quarter of the time: every shape is."""

    def number(value):
        if isinstance(value, Tracer):
            return lax.convert_element_type(value, m.dtype)
        return m.dtype.type(value)

    g, size = (lax.convert_element_type(a, m.dtype) for a in (g, size))
    m = lax.add(lax.mul(number(beta_1), m), lax.mul(number(1.0 - beta_1), g))
    square = lax.mul(number(1.0 - beta_2), lax.square(g))
    v = lax.add(lax.mul(number(beta_2), v), square)
    slots, most = {"m": m, "v": v}, v
    if v_max is not None:
        slots["v_max"] = most = lax.max(v_max, v)
    root = lax.add(lax.sqrt(most), number(epsilon))
    return lax.div(lax.mul(size, m), root), slots


_adapted_by_numbers = traced_once("beta_1", "beta_2", "epsilon")(_direction)


class Adam(Optimizer):
    r"""Adaptive moments: every element has a step size of its own.

    .. math::
        m ← β_1 m + (1 − β_1) g \qquad v ← β_2 v + (1 − β_2) g² \qquad
        p ← p − η \frac{\sqrt{1 − β_2^t}}{1 − β_1^t} \frac{m}{\sqrt{v} + \hat ε}

    Args:
        beta_1: Decay of the mean of gradients.
        beta_2: Decay of the mean of squared gradients.
        epsilon: ε̂, which keeps the division finite. It is added before the bias
            correction, as in the paper's more efficient form; the ε of the paper's
            first form is :math:`\hat ε / \sqrt{1 − β_2^t}`.
        amsgrad: Divide by the largest second moment seen so far.

    Raises:
        ArgumentError: A beta is not in [0, 1), or ``epsilon`` is negative.

    Example:
        >>> optimizer = Adam(learning_rate=0.1)
        >>> params = {"w": jnp.array([1.0])}
        >>> state = optimizer.init(params)
        >>> params, state = optimizer.update({"w": jnp.array([5.0])}, state, params)
        >>> round(float(params["w"][0]), 6)
        0.9

    Source: Kingma & Ba, *Adam: A Method for Stochastic Optimization*, 2015; Reddi et
    al., *On the Convergence of Adam and Beyond*, 2018 (AMSGrad).
    """

    eight_bit_slots = {"m": True, "v": False, "v_max": False}

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **options: Unpack[Options],
    ):
        super().__init__(learning_rate, **options)
        op = type(self).__name__
        self.beta_1 = check_rate(op, "beta_1", beta_1, below_one=True)
        self.beta_2 = check_rate(op, "beta_2", beta_2, below_one=True)
        self.epsilon = check_number(op, "epsilon", epsilon)
        self.amsgrad = bool(amsgrad)

    def transformation(self, learning_rate, count) -> optax.GradientTransformation:
        return adam_rule(
            learning_rate, count, self.beta_1, self.beta_2, self.epsilon, self.amsgrad
        )


class AdamW(Adam):
    r"""Adam with decoupled weight decay, ``p -= η λ p`` before each of its updates.

    Args:
        weight_decay: λ.
        epsilon: As in :class:`Adam`.

    Raises:
        ArgumentError: ``weight_decay`` is None or negative, or a beta not in [0, 1).

    Example:
        >>> optimizer = AdamW(learning_rate=0.1, weight_decay=0.5)
        >>> params = {"w": jnp.array([1.0])}
        >>> state = optimizer.init(params)
        >>> params, state = optimizer.update({"w": jnp.array([5.0])}, state, params)
        >>> round(float(params["w"][0]), 6)  # 1 − 0.1 · 0.5 · 1 − 0.1
        0.85

    Source: Loshchilov & Hutter, *Decoupled Weight Decay Regularization*, 2019.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        weight_decay: float = 0.004,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        **options: Unpack[DecayedOptions],
    ):
        if weight_decay is None:
            raise ArgumentError("AdamW", "weight_decay must be a number, received None")
        super().__init__(
            learning_rate,
            beta_1,
            beta_2,
            epsilon,
            amsgrad,
            weight_decay=weight_decay,
            **options,
        )
