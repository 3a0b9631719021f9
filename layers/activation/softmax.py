"""Softmax as a layer, with a mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import jax
import jax.numpy as jnp

from exburn.activations.vectors import softmax
from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import describe
from exburn.errors import ShapeError
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions


@register_builtin
class Softmax(Layer):
    """Turns scores into a distribution; masked positions get probability 0.

    ``y = exp(x) / sum(exp(x))`` along ``axis``, computed in float32

    Args:
        axis: The axis of the distribution, or several.

    Shape:
        x: any → the same; mask: broadcasts to x, True is kept

    Raises:
        ShapeError: The mask does not broadcast to the input.

    Example:
        >>> import numpy as np
        >>> Softmax()(np.zeros((1, 2)), mask=np.array([[True, False]])).tolist()
        [[1.0, 0.0]]
    """

    supports_masking = True

    def __init__(self, axis: int | Sequence[int] = -1, **kwargs: Unpack[LayerOptions]):
        super().__init__(**kwargs)
        self.axis = tuple(axis) if isinstance(axis, list | tuple) else axis

    def call(self, inputs, mask=None):
        x = self.cast(inputs)
        if mask is None:
            return softmax(x, self.axis)
        mask = self._align(jnp.asarray(mask), x)
        y = jax.nn.softmax(x.astype(jnp.float32), self.axis, where=mask)
        return jnp.where(mask, y, 0).astype(x.dtype)  # 0 also where all are masked

    def _align(self, mask, x):
        """The mask as booleans that broadcast to ``x``."""
        if mask.dtype != jnp.bool:
            mask = mask > 0.5
        if mask.ndim < x.ndim and mask.shape == x.shape[: mask.ndim]:
            return mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))
        pairs = zip(mask.shape[::-1], x.shape[::-1], strict=False)
        if mask.ndim > x.ndim or any(m != 1 and m != d for m, d in pairs):
            raise ShapeError(
                self.name,
                "the mask must broadcast to the input",
                {"mask": describe(mask), "input": describe(x)},
            )
        return mask
