"""A penalty on what passes through."""

from __future__ import annotations

from typing import Unpack

from exburn import regularizers
from exburn.core.registry import register_builtin
from exburn.module.layer import Layer
from exburn.module.layer_options import UnregularizedOptions


@register_builtin
class ActivityRegularization(Layer):
    """Hands its input on and adds a penalty on it to the loss.

    ``loss += (l1 * sum(|x|) + l2 * sum(x²)) / batch``

    Args:
        l1: Factor of the absolute values.
        l2: Factor of the squares.

    Shape:
        x: any → the same

    Raises:
        ArgumentError: A factor is negative.

    Example:
        >>> import numpy as np
        >>> ActivityRegularization(l2=0.01)(np.ones((2, 3))).shape
        (2, 3)
    """

    supports_masking = True

    def __init__(
        self, l1: float = 0.0, l2: float = 0.0, **kwargs: Unpack[UnregularizedOptions]
    ):
        super().__init__(activity_regularizer=regularizers.L1L2(l1=l1, l2=l2), **kwargs)
        self.l1, self.l2 = float(l1), float(l2)

    def call(self, inputs):
        return inputs
