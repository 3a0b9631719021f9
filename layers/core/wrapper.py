"""The base of layers that wrap another layer."""

from __future__ import annotations

from typing import Any, Unpack

from exburn.core.methods import overridable
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions


@register_builtin
class Wrapper(Layer):
    """A layer around another layer; subclasses override ``call``.

    A ``build`` of a subclass may call ``super().build(input_shape)``, which builds the
    layer inside for that shape; without one, it is built for what it is called on.

    Args:
        layer: The layer inside, kept as ``self.layer``.

    Raises:
        ArgumentError: ``layer`` is no layer.

    Example:
        >>> import numpy as np
        >>> from exburn.layers import Dense
        >>> Wrapper(Dense(3))(np.ones((2, 5))).shape
        (2, 3)
    """

    def __init__(self, layer: Any, **kwargs: Unpack[LayerOptions]):
        super().__init__(**kwargs)
        if not isinstance(layer, Layer):
            raise ArgumentError(
                type(self).__name__,
                f"a layer is needed, received {type(layer).__name__}",
                hint="ModuleLayer(module) makes a layer of any flax.nnx.Module.",
            )
        self.layer = layer

    def _build_parts(self, *shapes) -> None:
        if not self.layer.built:
            self.layer.build(*shapes)

    @overridable
    def call(self, inputs, **kwargs):
        return self.layer(inputs, **kwargs)
