"""Global pooling: one number per channel."""

from __future__ import annotations

from typing import Unpack

import jax.numpy as jnp

from exburn.core.registry import register_builtin
from exburn.layers.contract.layout import check_format, spatial_axes
from exburn.module.input_spec import InputSpec
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions

__all__ = [
    "GlobalAveragePooling1D",
    "GlobalAveragePooling2D",
    "GlobalAveragePooling3D",
    "GlobalMaxPooling1D",
    "GlobalMaxPooling2D",
    "GlobalMaxPooling3D",
]


class GlobalPooling(Layer):
    """Pooling over all spatial axes.

    Args:
        data_format: ``"channels_last"`` (the default) or ``"channels_first"``.
        keepdims: Whether the spatial axes stay, with size 1.

    Raises:
        ShapeError: The input has another rank.
    """

    rank = 2

    def __init__(
        self,
        data_format: str | None = None,
        keepdims: bool = False,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        self.data_format = check_format(type(self).__name__, data_format)
        self.keepdims = bool(keepdims)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    @property
    def _axes(self) -> tuple[int, ...]:
        return spatial_axes(self.rank, self.data_format)


class GlobalAveragePooling(GlobalPooling):
    """The mean over all spatial axes."""

    def call(self, inputs):
        return jnp.mean(self.cast(inputs), self._axes, keepdims=self.keepdims)


class GlobalMaxPooling(GlobalPooling):
    """The largest entry over all spatial axes."""

    def call(self, inputs):
        return jnp.max(inputs, self._axes, keepdims=self.keepdims)


@register_builtin
class GlobalAveragePooling1D(GlobalAveragePooling):
    """Mean of each channel over time; masked steps do not count.

    Shape:
        x: [batch, time, channels] → [batch, channels]; mask: [batch, time]

    Example:
        >>> import numpy as np
        >>> x = np.array([[[1.0], [3.0], [9.0]]])
        >>> GlobalAveragePooling1D()(x, mask=np.array([[True, True, False]])).tolist()
        [[2.0]]
    """

    rank = 1
    supports_masking = True

    def call(self, inputs, mask=None):
        if mask is None:
            return super().call(inputs)
        x, (time,) = self.cast(inputs), self._axes
        keep = jnp.expand_dims(jnp.asarray(mask, bool), 3 - time)
        total = jnp.where(keep, x, 0).sum(time, jnp.float32, keepdims=self.keepdims)
        count = keep.sum(time, jnp.float32, keepdims=self.keepdims)
        # a row that is masked everywhere has the mean 0
        return (total / jnp.maximum(count, 1)).astype(x.dtype)

    def compute_mask(self, inputs, mask=None):
        return None


@register_builtin
class GlobalAveragePooling2D(GlobalAveragePooling):
    """Mean of each channel over an image.

    Shape:
        x: [batch, height, width, channels] → [batch, channels]

    Example:
        >>> import numpy as np
        >>> GlobalAveragePooling2D()(np.arange(4.0).reshape(1, 2, 2, 1)).tolist()
        [[1.5]]

    Source: Lin et al., *Network In Network*, 2014.
    """

    rank = 2


@register_builtin
class GlobalAveragePooling3D(GlobalAveragePooling):
    """Mean of each channel over a volume.

    Shape:
        x: [batch, depth, height, width, channels] → [batch, channels]

    Example:
        >>> import numpy as np
        >>> GlobalAveragePooling3D(keepdims=True)(np.ones((2, 4, 5, 6, 3))).shape
        (2, 1, 1, 1, 3)
    """

    rank = 3


@register_builtin
class GlobalMaxPooling1D(GlobalMaxPooling):
    """Largest entry of each channel over time.

    Shape:
        x: [batch, time, channels] → [batch, channels]

    Example:
        >>> import numpy as np
        >>> GlobalMaxPooling1D()(np.array([[[1.0], [3.0]]])).tolist()
        [[3.0]]
    """

    rank = 1


@register_builtin
class GlobalMaxPooling2D(GlobalMaxPooling):
    """Largest entry of each channel over an image.

    Example:
        >>> import numpy as np
        >>> GlobalMaxPooling2D()(np.arange(4.0).reshape(1, 2, 2, 1)).tolist()
        [[3.0]]
    """

    _described_by = (GlobalAveragePooling2D,)
    rank = 2


@register_builtin
class GlobalMaxPooling3D(GlobalMaxPooling):
    """Largest entry of each channel over a volume.

    Example:
        >>> import numpy as np
        >>> GlobalMaxPooling3D()(np.ones((2, 4, 5, 6, 3))).shape
        (2, 3)
    """

    _described_by = (GlobalAveragePooling3D,)
    rank = 3
