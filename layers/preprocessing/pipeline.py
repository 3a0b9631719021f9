"""Layers one after another, as one layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import jax

from exburn.core import forward_context
from exburn.core.registry import register_builtin
from exburn.core.tensorflow_graphs import maps_datasets
from exburn.errors import ArgumentError
from exburn.module.layer import Layer
from exburn.module.layer_options import UnnamedOptions
from exburn.module.symbolic_tensor import has_symbol, record


@register_builtin
class Pipeline(Layer):
    """Layers one after another, for example to augment images.

    Called outside of a model, its layers run one by one, and images are augmented
    unless ``training=False``. With a layer that works on the host among them all of
    them do.

    Args:
        layers: The layers, first to last.

    Shape:
        x: what the first layer takes → what the last one returns

    Raises:
        ArgumentError: An entry is no layer.

    Example:
        >>> import numpy as np
        >>> from exburn.layers import RandomFlip, RandomRotation
        >>> augment = Pipeline([RandomFlip(), RandomRotation(0.1)])
        >>> augment(np.ones((4, 8, 8, 3))).shape
        (4, 8, 8, 3)
    """

    def __init__(
        self,
        layers: Sequence[Any],
        name: str | None = None,
        **kwargs: Unpack[UnnamedOptions],
    ):
        super().__init__(name=name, **kwargs)
        for layer in layers:
            if not isinstance(layer, Layer):
                raise ArgumentError(
                    "Pipeline", f"a layer is needed, received {type(layer).__name__}"
                )
        self._stack = list(layers)
        self._autocast = False

    @property
    def layers(self) -> list[Layer]:
        """The layers, first to last."""
        return list(self._stack)

    @property
    def on_host(self) -> bool:
        return any(layer.on_host for layer in self._stack)

    def _call_symbols(self, args, kwargs):
        if not self.on_host:
            return super()._call_symbols(args, kwargs)
        symbols = args[0]
        for layer in self._stack:
            symbols = layer(symbols)
        return record(self, args, kwargs, jax.tree.map(lambda v: v.spec, symbols))

    @maps_datasets
    def __call__(self, inputs, training=None, mask=None):
        if has_symbol(inputs) or forward_context.current() is not None:
            return super().__call__(inputs, training=training, mask=mask)
        return self._run(inputs, training is not False)

    def call(self, inputs, mask=None):
        return self._run(inputs, None)  # whether this trains, the pass knows

    def _run(self, inputs, training: bool | None):
        for layer in self._stack:
            inputs = layer(inputs, training=training)
        return inputs
