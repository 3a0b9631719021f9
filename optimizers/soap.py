"""SOAP."""

from __future__ import annotations

from typing import Any, Unpack

import jax
import jax.numpy as jnp
import optax

from exburn.core.checks import check_count, check_number, check_rate
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.options import DecayedOptions
from exburn.optimizers.contract.rules import bias_correction, per_parameter
from exburn.optimizers.shampoo import multiply_along, products_along, square_axes


class SOAP(Optimizer):
    r"""Adam in the eigenbasis of Shampoo's matrices.

    Along each axis of a parameter the products of gradients with themselves are
    averaged, :math:`L_i`. Their eigenvectors :math:`Q_i` turn gradients, and Adam's
    step in these directions is turned back. Every few updates one power iteration and
    a QR decomposition renew the eigenvectors. The first update changes no parameter:
    its gradient gives the first eigenvectors. Vectors are updated by Adam.

    Eigenvectors of equal values are any of many: where a batch has fewer rows than a
    layer features, what is rounded otherwise (on a mesh, or weights changed by 1e-6)
    moves losses in the third digit.

    Args:
        beta_1: Adam's decay of the mean of gradients.
        beta_2: Adam's decay of the mean of squared gradients, and of :math:`L_i`.
        epsilon: Adam's ε.
        weight_decay: Decoupled decay.
        precondition_interval: Updates from one renewal of the eigenvectors to the next.
        max_size: Axes that are longer are not turned.

    Raises:
        ArgumentError: A value is out of range.

    Example:
        >>> optimizer = SOAP(0.1, weight_decay=None)
        >>> params = {"w": jnp.ones((2, 2))}
        >>> state, grads = optimizer.init(params), {"w": jnp.array([[3.0, 0], [0, 1]])}
        >>> for _ in range(2):
        ...     params, state = optimizer.update(grads, state, params)
        >>> [round(float(value), 4) for value in params["w"].diagonal()]
        [0.9, 0.9]

    Source: N. Vyas et al., *SOAP: Improving and Stabilizing Shampoo using Adam*, 2024.
    """

    def __init__(
        self,
        learning_rate: Any = 0.003,
        beta_1: float = 0.95,
        beta_2: float = 0.95,
        epsilon: float = 1e-8,
        weight_decay: float | None = 0.01,
        precondition_interval: int = 10,
        max_size: int = 10_000,
        **options: Unpack[DecayedOptions],
    ):
        super().__init__(learning_rate, weight_decay=weight_decay, **options)
        op = "SOAP"
        self.beta_1 = check_rate(op, "beta_1", beta_1, below_one=True)
        self.beta_2 = check_rate(op, "beta_2", beta_2, below_one=True)
        self.epsilon = check_number(op, "epsilon", epsilon)
        self.precondition_interval = check_count(
            op, "precondition_interval", precondition_interval
        )
        self.max_size = check_count(op, "max_size", max_size)

    def _axes(self, p: Any) -> list[int]:
        return [] if p.ndim < 2 else square_axes(p, self.max_size)

    def transformation(self, learning_rate, count) -> optax.GradientTransformation:
        first = count == 0
        due = ~first & (count % self.precondition_interval == 0)
        size = learning_rate * jnp.sqrt(bias_correction(self.beta_2, count - 1))
        size = size / bias_correction(self.beta_1, count - 1)
        size = jnp.where(first, 0.0, size)

        def init(p, path):
            slots = {"momentum": jnp.zeros_like(p), "velocity": jnp.zeros_like(p)}
            for axis in self._axes(p):
                shape = (p.shape[axis],) * 2
                slots[f"products_{axis}"] = jnp.zeros(shape, p.dtype)
                slots[f"basis_{axis}"] = jnp.eye(shape[0], dtype=p.dtype)
            return slots

        def update(g, p, path, momentum, velocity, **slots):
            axes = self._axes(p)
            bases = {axis: slots[f"basis_{axis}"] for axis in axes}
            turned = _turn(g, bases)
            # Not the first gradient: nothing was turned by its eigenvectors yet.
            momentum = jnp.where(
                first, 0.0, self.beta_1 * momentum + (1.0 - self.beta_1) * turned
            )
            velocity = jnp.where(
                first,
                0.0,
                self.beta_2 * velocity + (1.0 - self.beta_2) * jnp.square(turned),
            )
            step = _turn_back(momentum / (jnp.sqrt(velocity) + self.epsilon), bases)
            products = {
                axis: self.beta_2 * slots[f"products_{axis}"]
                + (1.0 - self.beta_2) * products_along(g, axis)
                for axis in axes
            }

            def renew():
                return _renew(bases, products, momentum, velocity)

            def begin():
                new = {axis: _eigenvectors(products[axis]) for axis in axes}
                return new, momentum, velocity

            def keep():
                return bases, momentum, velocity

            which = jnp.where(first, 0, jnp.where(due, 1, 2))
            bases, momentum, velocity = jax.lax.switch(which, [begin, renew, keep])
            slots = {f"products_{axis}": value for axis, value in products.items()}
            slots |= {f"basis_{axis}": value for axis, value in bases.items()}
            slots |= {"momentum": momentum, "velocity": velocity}
            return -size * step, slots

        return per_parameter(init, update)


def _turn(g: jax.Array, bases: dict[int, jax.Array]) -> jax.Array:
    for axis, basis in bases.items():
        g = multiply_along(basis.T, g, axis)
    return g


def _turn_back(g: jax.Array, bases: dict[int, jax.Array]) -> jax.Array:
    for axis, basis in bases.items():
        g = multiply_along(basis, g, axis)
    return g


def _eigenvectors(products: jax.Array) -> jax.Array:
    """Eigenvectors, that of the largest eigenvalue first."""
    tiny = 1e-30 * jnp.eye(len(products), dtype=products.dtype)
    return jnp.linalg.eigh(products + tiny)[1][:, ::-1]


def _renew(
    bases: dict[int, jax.Array],
    products: dict[int, jax.Array],
    momentum: jax.Array,
    velocity: jax.Array,
) -> tuple[dict[int, jax.Array], jax.Array, jax.Array]:
    """Bases after a power iteration, and Adam's means in these directions."""
    momentum, new = _turn_back(momentum, bases), {}
    for axis, basis in bases.items():
        sizes = jnp.einsum("ij,ik,kj->j", basis, products[axis], basis)
        order = jnp.argsort(-sizes)
        velocity = jnp.take(velocity, order, axis)
        new[axis] = jnp.linalg.qr(products[axis] @ basis[:, order])[0]
    return new, _turn(momentum, new), velocity
