"""Shampoo."""

from __future__ import annotations

from typing import Any, Unpack

import jax
import jax.numpy as jnp
import optax

from exburn.core.checks import check_count, check_number, check_rate
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.options import Options
from exburn.optimizers.contract.rules import per_parameter


class Shampoo(Optimizer):
    r"""Steps in units of the gradients' spread along each axis of a parameter.

    For each of the k axes the products of gradients with themselves are summed up,
    :math:`L_i`, and the gradient is multiplied with their roots along each axis:

    .. math::
        L_i ← L_i + \sum_{\text{other axes}} g g^T \qquad
        p ← p − η \; g ×_1 L_1^{−1/2k} ×_2 … ×_k L_k^{−1/2k}

    Args:
        momentum: Decay of the mean of the steps, from 0 to 1.
        epsilon: What :math:`L_i` begins as, times the identity.
        precondition_interval: Updates from one computation of the roots to the next.
        max_size: Axes that are longer are left as they are.

    Raises:
        ArgumentError: A value is out of range.

    Example:
        >>> optimizer = Shampoo(0.1, epsilon=1e-6)
        >>> params = {"w": jnp.ones((2, 2))}
        >>> grads = {"w": jnp.diag(jnp.array([4.0, 0.25]))}
        >>> params, state = optimizer.update(grads, optimizer.init(params), params)
        >>> [round(float(value), 4) for value in params["w"].diagonal()]
        [0.9, 0.9]

    Source: V. Gupta, T. Koren, Y. Singer, *Shampoo: Preconditioned Stochastic Tensor
    Optimization*, 2018.
    """

    def __init__(
        self,
        learning_rate: Any = 0.01,
        momentum: float = 0.0,
        epsilon: float = 1e-4,
        precondition_interval: int = 1,
        max_size: int = 4096,
        **options: Unpack[Options],
    ):
        super().__init__(learning_rate, **options)
        op = "Shampoo"
        self.momentum = check_rate(op, "momentum", momentum)
        self.epsilon = check_number(op, "epsilon", epsilon, open_low=True)
        self.precondition_interval = check_count(
            op, "precondition_interval", precondition_interval
        )
        self.max_size = check_count(op, "max_size", max_size)

    def transformation(self, learning_rate, count) -> optax.GradientTransformation:
        due = count % self.precondition_interval == 0

        def init(p, path):
            slots = {"velocity": jnp.zeros_like(p)}
            for axis in square_axes(p, self.max_size):
                size = p.shape[axis]
                slots[f"sum_{axis}"] = self.epsilon * jnp.eye(size, dtype=p.dtype)
                slots[f"root_{axis}"] = jnp.eye(size, dtype=p.dtype)
            return slots

        def update(g, p, path, velocity, **slots):
            axes, step = square_axes(p, self.max_size), g
            for axis in axes:
                total = slots[f"sum_{axis}"] + products_along(g, axis)
                exponent, before = -0.5 / len(axes), slots[f"root_{axis}"]
                root = jax.lax.cond(
                    due,
                    lambda total=total, exponent=exponent: _power(total, exponent),
                    lambda before=before: before,
                )
                step = multiply_along(root, step, axis)
                slots |= {f"sum_{axis}": total, f"root_{axis}": root}
            velocity = self.momentum * velocity + step
            return -learning_rate * velocity, {"velocity": velocity, **slots}

        return per_parameter(init, update)


def square_axes(p: Any, most: int) -> list[int]:
    """The axes of a parameter that matrices of their size are kept for."""
    return [axis for axis, size in enumerate(p.shape) if 1 < size <= most]


def products_along(g: jax.Array, axis: int) -> jax.Array:
    """Products of the slices of an array along an axis, ``[size, size]``."""
    rows = jnp.moveaxis(g, axis, 0).reshape(g.shape[axis], -1)
    return rows @ rows.T


def multiply_along(matrix: jax.Array, g: jax.Array, axis: int) -> jax.Array:
    """A matrix times an array along one of its axes."""
    return jnp.moveaxis(jnp.tensordot(matrix, g, (1, axis)), 0, axis)


def _power(matrix: jax.Array, exponent: float) -> jax.Array:
    values, vectors = jnp.linalg.eigh(matrix)
    return (vectors * jnp.maximum(values, 1e-30) ** exponent) @ vectors.T
