"""Cross-entropies, and integers as vectors of zeros and ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from exburn.config import epsilon, floatx
from exburn.core.annotations import DType, Tensor
from exburn.core.checks import refuse_sparse
from exburn.core.precision import is_float
from exburn.errors import ArgumentError, ShapeError
from exburn.ops.contract import op

__all__ = [
    "binary_crossentropy",
    "categorical_crossentropy",
    "multi_hot",
    "one_hot",
    "sparse_categorical_crossentropy",
]


@op
def one_hot(
    x: Tensor,
    num_classes: int,
    axis: int = -1,
    dtype: DType = None,
    sparse: bool = False,
) -> jax.Array:
    """Integers as vectors with a single one; zeros for -1 and other integers outside.

    Args:
        x: Integers from 0, or floats that are.
        num_classes: Length of the vectors.
        axis: Where the new axis goes.
        dtype: Of the result; ``config.floatx()`` by default.
        sparse: Must be false.

    Shape:
        x: [...] → [..., num_classes]

    Example:
        >>> one_hot([1, -1], 2).tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """
    refuse_sparse("one_hot", sparse)
    x = jnp.asarray(x)
    if is_float(x.dtype):  # JAX takes integers; a fraction is none of them
        x = jnp.where(x == jnp.floor(x), x, -1)
    if not jnp.issubdtype(x.dtype, jnp.integer):
        x = x.astype(jnp.int32)
    return jax.nn.one_hot(x, num_classes, dtype=dtype or floatx(), axis=axis)


@op
def multi_hot(
    inputs: Tensor,
    num_classes: int | None = None,
    axis: int = -1,
    dtype: DType = None,
    sparse: bool = False,
    num_tokens: int | None = None,
) -> jax.Array:
    """Sets of integers as vectors with a one for each member.

    Args:
        inputs: Integers from 0, the members of a set along the last axis.
        num_classes: Length of the vectors.
        axis: Where the axis of the classes goes.
        dtype: Of the result; ``config.floatx()`` by default.
        sparse: Must be false.
        num_tokens: An older name of ``num_classes``.

    Shape:
        inputs: [batch, members] → [batch, num_classes]; [members] → [num_classes]

    Raises:
        ArgumentError: ``num_classes`` is missing.

    Example:
        >>> multi_hot([[0, 2], [1, 1]], 3).tolist()
        [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    num_classes = num_tokens if num_classes is None else num_classes
    if num_classes is None:
        raise ArgumentError("multi_hot", "num_classes must be given")
    inputs = jnp.asarray(inputs)
    hot = one_hot(inputs, num_classes, axis=axis, dtype=dtype, sparse=sparse)
    return hot.max(1 if inputs.ndim > 1 else 0)


@op
def binary_crossentropy(
    target: Tensor, output: Tensor, from_logits: bool = False
) -> jax.Array:
    """``-target log(p) - (1 - target) log(1 - p)``, for every element.

    Args:
        target: Zeros and ones, or probabilities.
        output: Probabilities, kept away from 0 and 1 by ``config.epsilon()``.
        from_logits: Whether ``output`` holds logits instead.

    Shape:
        target, output: [...] → [...]

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> binary_crossentropy([1.0], [0.5]).round(3).tolist() == [jnp.float32(0.693)]
        True
    """
    _check_same("binary_crossentropy", target, output)
    dtype = jnp.result_type(target, output)
    dtype = dtype if is_float(dtype) else jnp.float32
    target, output = target.astype(dtype), output.astype(dtype)
    if from_logits:
        yes, no = jax.nn.log_sigmoid(output), jax.nn.log_sigmoid(-output)
    else:
        output = jnp.clip(output, epsilon(), 1 - epsilon())
        yes, no = jnp.log(output), jnp.log1p(-output)
    return -target * yes - (1 - target) * no


@op
def categorical_crossentropy(
    target: Tensor, output: Tensor, from_logits: bool = False, axis: int = -1
) -> jax.Array:
    """``-sum target log(p)`` along the axis of the classes.

    Args:
        target: Probabilities of the classes, often one-hot.
        output: Predicted ones; they are divided by their sum.
        from_logits: Whether ``output`` holds logits instead.
        axis: The axis of the classes.

    Shape:
        target, output: [..., classes] → [...]

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> categorical_crossentropy([[0.0, 1.0]], [[0.0, 1.0]]).round(3).tolist()
        [0.0]
    """
    _check_same("categorical_crossentropy", target, output)
    return -(target * _log_probabilities(output, from_logits, axis)).sum(axis)


@op
def sparse_categorical_crossentropy(
    target: Tensor, output: Tensor, from_logits: bool = False, axis: int = -1
) -> jax.Array:
    """``-log(p[target])`` along the axis of the classes.

    Args:
        target: Integer classes; others than those of ``output`` cost nothing.
        output: Predicted probabilities; they are divided by their sum.
        from_logits: Whether ``output`` holds logits instead.
        axis: The axis of the classes.

    Shape:
        target: [...] or [..., 1]; output: [..., classes] → [...]

    Raises:
        ShapeError: The shapes do not fit.

    Example:
        >>> sparse_categorical_crossentropy([1], [[0.0, 1.0]]).round(3).tolist()
        [0.0]
    """
    if target.ndim == output.ndim and target.shape[-1] == 1:
        target = target[..., 0]
    rest = list(output.shape)
    del rest[axis]
    if tuple(rest) != tuple(target.shape):
        raise ShapeError(
            "sparse_categorical_crossentropy",
            "target has the shape of output without the axis of the classes",
            {"target": target.shape, "output": output.shape, "axis": axis},
        )
    log = _log_probabilities(output, from_logits, axis)
    hot = one_hot(target.astype(jnp.int32), output.shape[axis], axis=axis)
    return -(hot * log).sum(axis)


def _log_probabilities(output, from_logits: bool, axis: int):
    if from_logits:
        return jax.nn.log_softmax(output, axis)
    output = output / output.sum(axis, keepdims=True)
    return jnp.log(jnp.clip(output, epsilon(), 1 - epsilon()))


def _check_same(op: str, target, output) -> None:
    if target.shape != output.shape:
        raise ShapeError(
            op,
            "target and output have the same shape",
            {"target": target.shape, "output": output.shape},
        )
