"""The fully connected layer whose kernel counts as -1, 0 and 1."""

from __future__ import annotations

from typing import Any, Unpack

import jax

from exburn import activations, constraints, initializers, regularizers
from exburn.core.annotations import Identifier
from exburn.core.checks import check_count, check_number, check_optional
from exburn.core.registry import register_builtin
from exburn.layers.core.dense import Dense
from exburn.module.input_spec import InputSpec
from exburn.module.layer import Layer
from exburn.module.layer_options import UnregularizedOptions
from exburn.quantizers.rounding import ternarize
from exburn.runtime.kernels.padded_matmul import wide_product


@register_builtin
class TernaryDense(Layer):
    """A fully connected layer that trains a kernel of -1, 0 and 1.

    ``y = activation(mean|W| * (x @ T) + bias)``, ``T = sign(W) * (|W| > mean|W| / 2)``

    The kernel ``W`` itself is exact. Its gradient is that of ``T``, as if it had not
    been rounded. ``quantize("ternary")`` stores ``T``, five numbers in a byte, and the
    outputs stay the same; the layer is stored in no other way.

    Args:
        threshold: Up to which magnitude numbers of the kernel count as 0, at least 0.
            ``None`` takes ``mean|W| / 2``; the product has the factor ``mean|W|`` then,
            and none with a threshold.

    Raises:
        ArgumentError: ``units`` is no integer >= 1, or ``threshold`` is below 0.
        ShapeError: The last axis has another size than when the layer was built.

    Example:
        >>> import numpy as np
        >>> layer = TernaryDense(64, use_bias=False)
        >>> x = np.ones((2, 40), "float32")
        >>> exact = layer(x)
        >>> layer.quantize("ternary")
        >>> layer.kernel.nbytes, bool((abs(layer(x) - exact) < 1e-5).all())
        (516, True)

    Source: Ma et al., *The Era of 1-bit LLMs: All Large Language Models are in 1.58
    Bits*, 2024; ``keras.layers.TernaryDense`` of Keras 3.16.
    """

    _described_by = (Dense,)
    kept_as = {"activation": activations.get}
    activation: Any
    kernel: Any = None
    bias: Any = None

    def __init__(
        self,
        units: int,
        threshold: float | None = None,
        activation: Identifier = None,
        use_bias: bool = True,
        kernel_initializer: Identifier = "glorot_uniform",
        bias_initializer: Identifier = "zeros",
        kernel_regularizer: Identifier = None,
        bias_regularizer: Identifier = None,
        activity_regularizer: Identifier = None,
        kernel_constraint: Identifier = None,
        bias_constraint: Identifier = None,
        **kwargs: Unpack[UnregularizedOptions],
    ):
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self.units = check_count("TernaryDense", "units", units)
        self.threshold = check_optional(
            check_number, "TernaryDense", "threshold", threshold, low=0
        )
        self.activation = activation
        self.use_bias = bool(use_bias)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)
        self.bias_constraint = constraints.get(bias_constraint)
        self.supports_masking = True
        self.input_spec = InputSpec(min_ndim=2)

    def build(self, input_shape):
        size = input_shape[-1]
        self.kernel = self.add_weight(
            (size, self.units),
            self.kernel_initializer,
            name="kernel",
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        if self.use_bias:
            self.bias = self.add_weight(
                (self.units,),
                self.bias_initializer,
                name="bias",
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        self.input_spec = InputSpec(min_ndim=2, axes={-1: size})

    def call(self, inputs):
        x, kernel = self.cast(inputs), self.cast(self.kernel)
        # Decided on the exact numbers, whatever the dtype of the product.
        codes, factor = self.ternary_kernel()
        codes = jax.lax.stop_gradient(codes).astype(kernel.dtype)
        # Zeros whose gradient is the kernel's, so that the sum is exact.
        codes = codes + (kernel - jax.lax.stop_gradient(kernel))
        y = wide_product(x, codes)
        if self.threshold is None:
            y = y * factor.astype(y.dtype)
        return self._finish(y)

    def ternary_kernel(self):
        """The kernel's numbers as -1, 0 and 1, and their factor, in float32."""
        return ternarize(self.cast(self.kernel, "float32"), self.threshold)

    def _finish(self, y):
        """What comes behind the product."""
        return self.activation(y if self.bias is None else y + self.cast(self.bias))
