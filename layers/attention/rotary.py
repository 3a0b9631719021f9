"""Positions as rotations."""

from __future__ import annotations

from typing import Unpack

import jax.numpy as jnp
import numpy as np

from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, ShapeError
from exburn.layers.contract.key_value_cache import current_cache
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions


@register_builtin
class RotaryEmbedding(Layer):
    """Turns pairs of features by an angle that grows with the position.

    Feature i of the first half and of the second half are a point in the plane, turned
    by ``position / scaling_factor * max_wavelength ** (-2 i / size)``. The product of a
    turned query and a turned key depends on the distance of their positions only, so
    attention sees relative positions. There are no weights; apply it to the heads of
    query and key, or pass it as ``rotary=`` to :class:`MultiHeadAttention` or
    :class:`GroupedQueryAttention`.

    Args:
        max_wavelength: Base of the geometric series of angles.
        scaling_factor: Positions are divided by it, for longer contexts.
        sequence_axis: Axis of the positions.
        feature_axis: Axis of the features; its size is even.

    Call arguments:
        inputs: Queries or keys.
        start_index: Position of the first step.
        positions: [time] or [batch, time]: the position of each step, instead. While a
            model generates they are those of the tokens that the pass is about.

    Shape:
        x: [batch, time, …, size] → same

    Raises:
        ArgumentError: The two axes are the same, or a factor is not positive.
        ShapeError: The number of features is odd.

    Example:
        >>> import numpy as np
        >>> heads = np.ones((2, 6, 4, 8), "float32")
        >>> y = RotaryEmbedding()(heads)
        >>> y.shape, bool((y[:, 0] == 1).all())
        ((2, 6, 4, 8), True)

    Source: Su et al., *RoFormer: Enhanced Transformer with Rotary Position Embedding*,
    2021.
    """

    def __init__(
        self,
        max_wavelength: float = 10000,
        scaling_factor: float = 1.0,
        sequence_axis: int = 1,
        feature_axis: int = -1,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        if max_wavelength <= 0 or scaling_factor <= 0:
            raise ArgumentError(
                "RotaryEmbedding",
                "max_wavelength and scaling_factor are positive",
                {"received": (max_wavelength, scaling_factor)},
            )
        self.max_wavelength = max_wavelength
        self.scaling_factor = scaling_factor
        self.sequence_axis = sequence_axis
        self.feature_axis = feature_axis
        self.supports_masking = True

    def call(self, inputs, start_index=0, positions=None):
        rank = inputs.ndim
        time, features = self.sequence_axis % rank, self.feature_axis % rank
        if time == features:
            raise ArgumentError(self.name, "positions and features are the same axis")
        size = inputs.shape[features]
        if not isinstance(size, int) or size % 2:
            raise ShapeError(
                self.name,
                f"an even number of features is needed, received {describe(inputs)}",
            )
        if positions is None:
            cache, count = current_cache(), inputs.shape[time]
            own = jnp.arange(count) if cache is None else cache.positions(count)
            positions = own + start_index
        cos, sin = self._angles(positions, size, rank, time, features)
        wide = jnp.promote_types(inputs.dtype, jnp.float32)
        x, y = jnp.split(inputs.astype(wide), 2, axis=features)
        turned = jnp.concatenate([x * cos - y * sin, y * cos + x * sin], axis=features)
        return turned.astype(inputs.dtype)

    def _angles(self, positions, size: int, rank: int, time: int, features: int):
        """Cosine and sine of the angles, in float32, shaped to broadcast."""
        powers = -np.arange(0, size, 2) / size
        speeds = np.asarray(self.max_wavelength**powers, np.float32)
        positions = jnp.asarray(positions, jnp.float32) / self.scaling_factor
        angles = (
            positions[..., None] * speeds
        )  # [time, size/2] or [batch, time, size/2]
        if angles.ndim == 2:
            angles = angles[None]
        if features < time:
            angles = angles.swapaxes(1, 2)
        others = set(range(rank)) - {0, time, features}
        angles = jnp.expand_dims(angles, tuple(sorted(others)))
        return jnp.cos(angles), jnp.sin(angles)
