"""Marks the steps of a sequence that are only padding."""

from __future__ import annotations

from typing import Any, Unpack

import jax.numpy as jnp

from exburn.core.registry import register_builtin
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions


@register_builtin
class Masking(Layer):
    """Masks the steps whose features all equal a value, and sets them to zero.

    Layers after it, the loss and the metrics leave masked steps out.

    Args:
        mask_value: The value.

    Shape:
        x: [batch, time, features] → same, with a mask [batch, time]

    Example:
        >>> import numpy as np
        >>> x = np.array([[[1.0, 2.0], [9.0, 9.0]]])
        >>> Masking(mask_value=9.0)(x).tolist()
        [[[1.0, 2.0], [0.0, 0.0]]]
    """

    def __init__(self, mask_value: Any = 0.0, **kwargs: Unpack[LayerOptions]):
        super().__init__(**kwargs)
        self.mask_value = mask_value
        self.supports_masking = True

    def call(self, inputs):
        return jnp.where(self._used_steps(inputs)[..., None], inputs, 0)

    def compute_mask(self, inputs, mask=None):
        return self._used_steps(inputs)

    def _used_steps(self, inputs):
        return jnp.any(inputs != jnp.asarray(self.mask_value, inputs.dtype), axis=-1)
