"""Positions as rotations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import jax.numpy as jnp
import numpy as np

from exburn.core import forward_context
from exburn.core.checks import check_number
from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, ShapeError
from exburn.layers.contract.key_value_cache import current_cache
from exburn.layers.contract.rotary_scaling import RotaryScaling
from exburn.layers.contract.segments import current_segments, token_positions
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions
from exburn.module.variable import Static


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
        scaling: How angles change for texts longer than those of the first training: a
            mapping with ``rope_type`` (``"linear"``, ``"dynamic"``, ``"llama3"``,
            ``"yarn"`` or ``"longrope"``) and the entries that ``transformers`` has for
            it, as ``factor``; None for none.
        partial_rotary_factor: Share of the features that is turned, the first ones.

    ``"dynamic"`` and ``"longrope"`` depend on the length of a row, as far as the pass
    sees it. What fills rows up behind their texts counts, but not in ``generate``.
    There, keys of ``"dynamic"`` stay in the cache as they were turned; and rows that
    ``"longrope"`` has turned otherwise once they are longer are computed anew for each
    token, if they become so long while they are written.

    Call arguments:
        inputs: Queries or keys.
        start_index: Position of the first step.
        positions: [time] or [batch, time]: the position of each step, instead. While a
            model generates they are those of the tokens that the pass is about; in
            packed rows they begin again with each document.

    Shape:
        x: [batch, time, …, size] → same

    Raises:
        ArgumentError: The two axes are the same, a factor is not positive, or
            ``scaling`` lacks an entry or has one that its kind does not take.
        ShapeError: The number of features is odd, or that of those that are turned.

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
        *,
        scaling: Mapping[str, Any] | None = None,
        partial_rotary_factor: float = 1.0,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        if max_wavelength <= 0 or scaling_factor <= 0:
            raise ArgumentError(
                "RotaryEmbedding",
                "max_wavelength and scaling_factor are positive",
                {"received": (max_wavelength, scaling_factor)},
            )
        self._scaling = Static(None if scaling is None else RotaryScaling.of(scaling))
        if scaling is not None and scaling_factor != 1:
            raise ArgumentError(
                "RotaryEmbedding",
                "scaling and scaling_factor both change positions; one is enough",
                {"received": (scaling, scaling_factor)},
            )
        self.partial_rotary_factor = check_number(
            *("RotaryEmbedding", "partial_rotary_factor", partial_rotary_factor),
            high=1,
            open_low=True,
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
        size = self._turned_size(inputs, features)
        cache, count = current_cache(), inputs.shape[time]
        if positions is None:
            own = token_positions(count)
            positions = (jnp.arange(count) if own is None else own) + start_index
        scaling = self._scaling.value
        if cache is not None and scaling is not None and scaling.turning_length:
            cache.note_turning_length(scaling.turning_length)
        cos, sin = self._angles(positions, size, rank, time, features)
        wide = jnp.promote_types(inputs.dtype, jnp.float32)
        x, y, *rest = jnp.split(
            inputs.astype(wide), [size // 2, size][: 1 + self._is_partial], features
        )
        parts = [x * cos - y * sin, y * cos + x * sin, *rest]
        turned = jnp.concatenate(parts, axis=features).astype(inputs.dtype)
        if cache is not None and not rest and (rank, time, features) == (4, 1, 3):
            cache.note_turned(turned, inputs, (cos, sin), self)
        return turned

    @property
    def _is_partial(self) -> bool:
        return self.partial_rotary_factor < 1

    def _turned_size(self, inputs, features: int) -> int:
        """The number of features that are turned."""
        size = inputs.shape[features]
        if isinstance(size, int) and self._is_partial:
            turned = int(size * self.partial_rotary_factor)
            if turned < 2 or turned % 2:
                raise ShapeError(
                    self.name,
                    f"an even number of features is turned, received "
                    f"{describe(inputs)}, of which {turned} are",
                )
            return turned
        if not isinstance(size, int) or size % 2:
            raise ShapeError(
                self.name,
                f"an even number of features is needed, received {describe(inputs)}",
            )
        return size

    def _angles(self, positions, size: int, rank: int, time: int, features: int):
        """Cosine and sine of the angles, in float32, shaped to broadcast."""
        scaling, base = self._scaling.value, self.max_wavelength
        if scaling is None:
            speeds = np.asarray(base ** (-np.arange(0, size, 2) / size), np.float32)
        elif scaling.depends_on_length:
            speeds = scaling.speeds(base, size, _lengths(positions))
        else:
            speeds = scaling.speeds(base, size)
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
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        if scaling is None or scaling.magnitude == 1:
            return cos, sin
        return cos * scaling.magnitude, sin * scaling.magnitude


def _lengths(positions):
    """Tokens of each row's text, ``[batch, 1, 1]``, or of all, ``[1, 1]``.

    In packed rows those of each token's document, and where the pass tells them by
    token, those up to each of them: ``[batch, time, 1]``.
    """
    if (segments := current_segments()) is not None:
        return segments.lengths()[..., None]
    ctx = forward_context.current()
    lengths = None if ctx is None else ctx.text_lengths
    if lengths is not None:
        return lengths.reshape(len(lengths), -1, 1)
    return jnp.asarray(positions).max(axis=-1, keepdims=True)[..., None] + 1
