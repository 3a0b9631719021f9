"""Activation functions as ops: those of ``exburn.activations``, where Keras' agree."""

from __future__ import annotations

import jax

from exburn import activations
from exburn.core.annotations import Axis, Tensor
from exburn.ops.contract import op

# fmt: off
__all__ = [
    "celu", "elu", "gelu", "glu", "hard_shrink", "hard_sigmoid", "hard_silu",
    "hard_swish", "hard_tanh", "leaky_relu", "log_sigmoid", "log_softmax", "relu",
    "relu6", "selu", "sigmoid", "silu", "soft_shrink", "softmax", "softplus",
    "softsign", "sparse_plus", "sparse_sigmoid", "sparsemax", "squareplus", "swish",
    "tanh_shrink", "threshold",
]
# fmt: on

celu = op(activations.celu)
elu = op(activations.elu)
glu = op(activations.glu)
hard_shrink = op(activations.hard_shrink)
hard_sigmoid = op(activations.hard_sigmoid)
hard_silu = op(activations.hard_silu)
hard_tanh = op(activations.hard_tanh)
leaky_relu = op(activations.leaky_relu)
log_sigmoid = op(activations.log_sigmoid)
relu6 = op(activations.relu6)
selu = op(activations.selu)
sigmoid = op(activations.sigmoid)
silu = op(activations.silu)
soft_shrink = op(activations.soft_shrink)
softmax = op(activations.softmax)
softplus = op(activations.softplus)
softsign = op(activations.softsign)
sparse_plus = op(activations.sparse_plus)
sparse_sigmoid = op(activations.sparse_sigmoid)
sparsemax = op(activations.sparsemax)
squareplus = op(activations.squareplus)
tanh_shrink = op(activations.tanh_shrink)
threshold = op(activations.threshold)
hard_swish, swish = hard_silu, silu


@op
def gelu(x: Tensor, approximate: bool = True) -> jax.Array:
    """The Gaussian error linear unit: ``x`` times the normal distribution below ``x``.

    Args:
        approximate: Whether the share is computed with ``tanh``, which is quicker.

    Example:
        >>> gelu([0.0, 10.0]).tolist()
        [0.0, 10.0]
    """
    return jax.nn.gelu(x, approximate=approximate)


@op
def relu(x: Tensor) -> jax.Array:
    """``x`` above 0, and 0 below it.

    Example:
        >>> relu([-1.0, 2.0]).tolist()
        [0.0, 2.0]
    """
    return jax.nn.relu(x)


@op
def log_softmax(x: Tensor, axis: Axis = -1) -> jax.Array:
    """The logarithm of the softmax, without overflow.

    Args:
        axis: The axis along which probabilities sum to 1.

    Example:
        >>> log_softmax([0.0, -1000.0]).tolist()
        [0.0, -1000.0]
    """
    return jax.nn.log_softmax(x, axis=axis)
