"""Activation functions as ops."""

from __future__ import annotations

from typing import Any

import jax

from exburn import activations
from exburn.ops.binding import bind, op

# fmt: off
__all__ = [
    "celu", "elu", "gelu", "glu", "hard_shrink", "hard_sigmoid", "hard_silu",
    "hard_swish", "hard_tanh", "leaky_relu", "log_sigmoid", "log_softmax", "relu",
    "relu6", "selu", "sigmoid", "silu", "soft_shrink", "softmax", "softplus",
    "softsign", "sparse_plus", "sparse_sigmoid", "sparsemax", "squareplus", "swish",
    "tanh_shrink", "threshold",
]
# fmt: on

celu = bind(jax.nn.celu, "x, /, alpha")
elu = bind(jax.nn.elu, "x, /, alpha")
gelu = bind(jax.nn.gelu, "x, /, approximate")
glu = bind(jax.nn.glu, "x, /, axis")
hard_shrink = bind(activations.hard_shrink, "x, /, threshold")
hard_sigmoid = bind(jax.nn.hard_sigmoid, "x, /")
hard_silu = bind(jax.nn.hard_silu, "x, /")
hard_swish = hard_silu
hard_tanh = bind(jax.nn.hard_tanh, "x, /")
leaky_relu = bind(activations.leaky_relu, "x, /, negative_slope")
log_sigmoid = bind(jax.nn.log_sigmoid, "x, /")
log_softmax = bind(jax.nn.log_softmax, "x, /, axis")
relu6 = bind(jax.nn.relu6, "x, /")
relu = bind(jax.nn.relu, "x, /")
selu = bind(jax.nn.selu, "x, /")
sigmoid = bind(jax.nn.sigmoid, "x, /")
silu = bind(jax.nn.silu, "x, /", "silu")
soft_shrink = bind(activations.soft_shrink, "x, /, threshold")
softmax = bind(activations.softmax, "x, /, axis")
softplus = bind(jax.nn.softplus, "x, /")
softsign = bind(jax.nn.soft_sign, "x, /", "softsign")
sparse_plus = bind(jax.nn.sparse_plus, "x, /")
sparse_sigmoid = bind(jax.nn.sparse_sigmoid, "x, /")
sparsemax = bind(activations.sparsemax, "x, /, axis")
swish = silu
tanh_shrink = bind(activations.tanh_shrink, "x, /")
threshold = bind(activations.threshold, "x, /, threshold, default_value")


@op
def squareplus(x, b: Any = 4):
    """``(x + sqrt(x² + b)) / 2``, a smooth rectifier.

    Args:
        x: An array, or a symbol.
        b: How round it is at 0.

    Example:
        >>> squareplus(0.0).tolist()
        1.0
    """
    return jax.nn.squareplus(x, b)
