"""Spectral normalization."""

from __future__ import annotations

from typing import Any, Unpack

import jax
import jax.numpy as jnp

from exburn import initializers
from exburn.core.checks import check_count
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.layers.core.wrapper import Wrapper
from exburn.module.layer_options import LayerOptions
from exburn.module.variable import assign

_MOST = 100


@register_builtin
class SpectralNormalization(Wrapper):
    """Calls a layer with its kernel divided by the kernel's largest singular value.

    ``sigma = v W u``, where u and v follow from power iterations. The vector u is kept
    and improved in training; the kernel itself stays as the optimizer made it.

    Args:
        layer: A layer with a ``kernel`` or ``embeddings``.
        power_iterations: Number of iterations per call.

    Raises:
        ArgumentError: The layer has neither, or ``power_iterations`` is below 1.

    Example:
        >>> import numpy as np
        >>> from exburn.layers import Dense
        >>> layer = SpectralNormalization(Dense(3, kernel_initializer="ones"), 5)
        >>> round(float(np.linalg.norm(layer(np.eye(3)), 2)), 3)
        1.0

    Source: Miyato et al., *Spectral Normalization for Generative Adversarial
    Networks*, 2018.
    """

    def __init__(
        self, layer: Any, power_iterations: int = 1, **kwargs: Unpack[LayerOptions]
    ):
        super().__init__(layer, **kwargs)
        self.power_iterations = check_count(
            "SpectralNormalization", "power_iterations", power_iterations
        )
        if self.power_iterations > _MOST:  # the loop is unrolled
            raise ArgumentError(
                "SpectralNormalization",
                f"power_iterations must be at most {_MOST}, received "
                f"{power_iterations}",
            )

    def build(self, input_shape):
        super().build(input_shape)
        self.vector_u = self.add_weight(
            (1, self._weight.shape[-1]),
            initializers.get("truncated_normal"),
            name="vector_u",
            trainable=False,
        )

    @property
    def kernel(self):
        """The weight of the layer inside that is divided."""
        return self._weight

    @property
    def kernel_shape(self) -> tuple[int, ...]:
        return tuple(self._weight.shape)

    @property
    def _weight(self):
        for name in ("kernel", "embeddings"):
            if getattr(self.layer, name, None) is not None:
                return getattr(self.layer, name)
        raise ArgumentError(
            self.name,
            f"{type(self.layer).__name__} has neither a kernel nor embeddings",
        )

    def call(self, inputs, training=False):
        weight = self._weight
        raw = weight.get_raw_value()
        matrix = raw.astype(jnp.float32).reshape(-1, raw.shape[-1])
        fixed = jax.lax.stop_gradient(matrix)
        u = self.vector_u.get_value().astype(jnp.float32)
        for _ in range(self.power_iterations):
            v = _unit(u @ fixed.T)
            u = _unit(v @ fixed)
        if training and self.trainable:
            self.vector_u.assign(u)
        sigma = (v @ matrix @ u.T)[0, 0]
        sigma = jnp.where(sigma > 0, sigma, 1)  # a kernel of zeros stays zero
        assign(weight, raw / sigma, fresh=True)
        try:
            return self.layer(inputs)
        finally:
            weight.set_raw_value(raw)


def _unit(x):
    return x * jax.lax.rsqrt(jnp.maximum(jnp.sum(x * x), 1e-24))
