"""Layers that hand their input on, as it is or rescaled."""

from __future__ import annotations

from typing import Any, Unpack

import jax.numpy as jnp

from exburn.config import image_data_format
from exburn.core.registry import register_builtin
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions


@register_builtin
class Identity(Layer):
    """Returns its input.

    Shape:
        x: any → the same

    Example:
        >>> import numpy as np
        >>> Identity()(np.ones((2, 3))).shape
        (2, 3)
    """

    supports_masking = True
    moves_text = True

    def call(self, inputs):
        return inputs


@register_builtin
class Rescaling(Layer):
    """Multiplies by a constant and adds one, for example to bring bytes to [0, 1].

    ``y = x * scale + offset``

    Args:
        scale: A number, or a list of numbers, one a channel: of the last axis, or of
            the one that ``config.image_data_format()`` says, for images.
        offset: A number, or such a list.

    Shape:
        x: [batch, …] → [batch, …], in the compute dtype

    Example:
        >>> import numpy as np
        >>> Rescaling(0.5, offset=-1)(np.array([[0, 1, 2]], "uint8")).tolist()
        [[-1.0, -0.5, 0.0]]
    """

    supports_masking = True

    def __init__(self, scale: Any, offset: Any = 0.0, **kwargs: Unpack[LayerOptions]):
        super().__init__(**kwargs)
        self.scale = tuple(scale) if isinstance(scale, list) else scale
        self.offset = tuple(offset) if isinstance(offset, list) else offset

    def call(self, inputs):
        scale, offset = (
            _by_channel(jnp.asarray(v), inputs.ndim) for v in (self.scale, self.offset)
        )
        return self.cast(inputs) * self.cast(scale) + self.cast(offset)


def _by_channel(values, ndim: int):
    """Numbers for the channels of images, whichever axis these are."""
    if values.ndim != 1 or ndim < 4 or image_data_format() == "channels_last":
        return values
    return values.reshape(-1, *(1,) * (ndim - 2))
