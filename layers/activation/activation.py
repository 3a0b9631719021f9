"""Any activation function as a layer."""

from __future__ import annotations

from typing import Any, Unpack

from exburn import activations
from exburn.core.annotations import Identifier
from exburn.core.registry import register_builtin
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions


@register_builtin
class Activation(Layer):
    """Applies an activation function.

    Args:
        activation: Name of an activation, or a function.

    Shape:
        x: any → the same

    Raises:
        UnknownNameError: No activation has that name.

    Example:
        >>> import numpy as np
        >>> Activation("relu")(np.array([-1.0, 2.0])).tolist()
        [0.0, 2.0]
    """

    kept_as = {"activation": activations.get}
    activation: Any
    supports_masking = True

    def __init__(self, activation: Identifier, **kwargs: Unpack[LayerOptions]):
        super().__init__(**kwargs)
        self.activation = activation

    def call(self, inputs):
        return self.activation(inputs)
