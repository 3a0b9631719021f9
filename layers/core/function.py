"""Any pure function as a layer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Unpack

from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions


@register_builtin
class Lambda(Layer):
    """Wraps a pure function of arrays as a layer.

    Args:
        function: ``f(x)``; it may also take ``mask`` and ``training`` by name.
        output_shape: Accepted for Keras code; shapes are found by tracing.
        mask: Mask of the output: an array, or ``f(inputs, mask)``.
        arguments: Further keyword arguments of the function.

    Shape:
        x: any → whatever the function returns

    Raises:
        ArgumentError: ``function`` cannot be called. Saving raises it for a function
            that was not registered with ``exburn.register``.

    Example:
        >>> import jax.numpy as jnp
        >>> Lambda(jnp.square)(jnp.array([2.0, 3.0])).tolist()
        [4.0, 9.0]
    """

    def __init__(
        self,
        function: Callable[..., Any],
        output_shape: Any = None,
        mask: Any = None,
        arguments: Mapping[str, Any] | None = None,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        if not callable(function):
            raise ArgumentError("Lambda", f"a function is needed, not {function!r}")
        self.function = function
        self._extra = tuple((arguments or {}).items())
        self.mask = mask
        if mask is not None:
            self.supports_masking = True
        self._takes = _parameters(function) & {"mask", "training"}

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Further keyword arguments of the function; they do not change."""
        return MappingProxyType(dict(self._extra))

    def call(self, inputs, mask=None, training=None):
        extra = dict(self._extra)
        if "training" in self._takes:
            extra["training"] = training
        if "mask" in self._takes:
            extra["mask"] = mask
        return self.function(inputs, **extra)

    def compute_mask(self, inputs, mask=None):
        if callable(self.mask):
            return self.mask(inputs, mask)
        return self.mask


def _parameters(function: Callable) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(function).parameters)
    except ValueError:  # a builtin without a signature takes no options
        return frozenset()
