"""Activation functions: pure functions of arrays, most of them ``jax.nn``'s.

All act on one value at a time, ``x: […] → […]``, unless they take an ``axis``. Integers
and lists are taken as well. ``get("gelu")`` finds one by name.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from exburn import registry
from exburn.errors import ArgumentError, ShapeError, UnknownNameError, unknown_name


def relu(x, negative_slope=0.0, max_value=None, threshold=0.0):
    """Rectified linear unit.

    ``x`` above the threshold (but ``max_value`` at most), and
    ``negative_slope * (x - threshold)`` below it.

    Args:
        x: Input.
        negative_slope: Slope below the threshold.
        max_value: Where the output saturates; ``None`` for nowhere.
        threshold: What inputs must exceed to pass.

    Example:
        >>> relu([-2.0, 0.5, 8.0], negative_slope=0.25, max_value=6.0).tolist()
        [-0.5, 0.5, 6.0]
    """
    x = jnp.asarray(x)
    if negative_slope != 0 and max_value is None and threshold == 0:
        return jax.nn.leaky_relu(x, negative_slope)
    if threshold != 0:
        out = jnp.where(x > threshold, x, jnp.zeros_like(x))
    elif max_value == 6:
        out = jax.nn.relu6(x)
    else:
        out = jax.nn.relu(x)
    if max_value is not None and (threshold != 0 or max_value != 6):
        out = jnp.clip(out, 0, max_value)
    if negative_slope != 0:
        out = out - negative_slope * jax.nn.relu(threshold - x)
    return out


def leaky_relu(x, negative_slope=0.2):
    """``x`` if positive, else ``negative_slope * x``.

    Example:
        >>> leaky_relu([-5.0, 2.0]).tolist()
        [-1.0, 2.0]
    """
    return jax.nn.leaky_relu(jnp.asarray(x), negative_slope)


def relu6(x):
    """``min(max(x, 0), 6)``.

    Example:
        >>> relu6([-1.0, 3.0, 9.0]).tolist()
        [0.0, 3.0, 6.0]
    """
    return jax.nn.relu6(jnp.asarray(x))


def elu(x, alpha=1.0):
    """Exponential linear unit: ``x`` if positive, else ``alpha * (exp(x) - 1)``.

    Example:
        >>> elu([-100.0, 2.0], alpha=0.5).tolist()
        [-0.5, 2.0]

    Source: Clevert et al., *Fast and Accurate Deep Network Learning by Exponential
    Linear Units*, 2015.
    """
    return jax.nn.elu(jnp.asarray(x), alpha)


def selu(x):
    """Scaled ELU, ``1.0507 * elu(x, 1.6733)``: keeps mean 0 and variance 1.

    Goes with ``lecun_normal`` and ``AlphaDropout``.

    Example:
        >>> selu([0.0, 1.0]).round(4).tolist() == [0.0, jnp.float32(1.0507)]
        True

    Source: Klambauer et al., *Self-Normalizing Neural Networks*, 2017.
    """
    return jax.nn.selu(jnp.asarray(x))


def celu(x, alpha=1.0):
    """Smooth ELU: ``x`` if positive, else ``alpha * (exp(x / alpha) - 1)``.

    Example:
        >>> celu([-100.0, 2.0], alpha=2.0).tolist()
        [-2.0, 2.0]

    Source: Barron, *Continuously Differentiable Exponential Linear Units*, 2017.
    """
    return jax.nn.celu(jnp.asarray(x), alpha)


def gelu(x, approximate=False):
    """Gaussian error linear unit: ``x * Φ(x)``, Φ the normal distribution function.

    Args:
        x: Input.
        approximate: Whether to use the formula with tanh instead of erf, as GPT-2 does.

    Example:
        >>> gelu([-50.0, 0.0, 50.0]).tolist()
        [-0.0, 0.0, 50.0]

    Source: Hendrycks & Gimpel, *Gaussian Error Linear Units*, 2016.
    """
    return jax.nn.gelu(jnp.asarray(x), approximate=approximate)


def silu(x):
    """``x * sigmoid(x)``, also called swish.

    Example:
        >>> silu([-100.0, 0.0, 100.0]).tolist()
        [-0.0, 0.0, 100.0]

    Source: Ramachandran et al., *Searching for Activation Functions*, 2017.
    """
    return jax.nn.silu(jnp.asarray(x))


def mish(x):
    """``x * tanh(softplus(x))``.

    Example:
        >>> mish([0.0, 100.0]).tolist()
        [0.0, 100.0]

    Source: Misra, *Mish: A Self Regularized Non-Monotonic Activation Function*, 2019.
    """
    return jax.nn.mish(jnp.asarray(x))


def glu(x, axis=-1):
    """Gated linear unit: ``a * sigmoid(b)`` for the two halves ``a, b`` of ``x``.

    Args:
        x: Input.
        axis: Axis that is split.

    Shape:
        ``x: […, 2n, …] → […, n, …]``

    Raises:
        ShapeError: The size of the axis is odd.

    Example:
        >>> glu([[4.0, 0.0]]).tolist()
        [[2.0]]

    Source: Dauphin et al., *Language Modeling with Gated Convolutional Networks*, 2016.
    """
    x = _with_axis("glu", x, axis)
    if x.shape[axis] % 2:
        raise ShapeError(
            "glu", f"axis {axis} must have an even size", {"x": tuple(x.shape)}
        )
    return jax.nn.glu(x, axis)


def sigmoid(x):
    """``1 / (1 + exp(-x))``.

    Example:
        >>> sigmoid([-100.0, 0.0, 100.0]).tolist()
        [0.0, 0.5, 1.0]
    """
    return jax.nn.sigmoid(jnp.asarray(x))


def log_sigmoid(x):
    """``log(sigmoid(x))``, without overflow.

    Example:
        >>> log_sigmoid([-1000.0, 1000.0]).tolist()
        [-1000.0, -0.0]
    """
    return jax.nn.log_sigmoid(jnp.asarray(x))


def sparse_sigmoid(x):
    """0 up to -1, ``(x + 1) / 2`` up to 1, then 1.

    Example:
        >>> sparse_sigmoid([-3.0, 0.0, 3.0]).tolist()
        [0.0, 0.5, 1.0]

    Source: Blondel et al., *Learning Classifiers with Fenchel-Young Losses*, 2019.
    """
    return jax.nn.sparse_sigmoid(jnp.asarray(x))


def hard_sigmoid(x):
    """``relu6(x + 3) / 6``: a sigmoid of straight lines.

    Example:
        >>> hard_sigmoid([-3.0, 0.0, 3.0]).tolist()
        [0.0, 0.5, 1.0]
    """
    return jax.nn.hard_sigmoid(jnp.asarray(x))


def hard_silu(x):
    """``x * hard_sigmoid(x)``, also called hard swish.

    Example:
        >>> hard_silu([-4.0, 0.0, 4.0]).tolist()
        [-0.0, 0.0, 4.0]

    Source: Howard et al., *Searching for MobileNetV3*, 2019.
    """
    return jax.nn.hard_silu(jnp.asarray(x))


def tanh(x):
    """Hyperbolic tangent.

    Example:
        >>> tanh([-100.0, 0.0, 100.0]).tolist()
        [-1.0, 0.0, 1.0]
    """
    return jnp.tanh(jnp.asarray(x))


def hard_tanh(x):
    """``x``, cut off at -1 and 1.

    Example:
        >>> hard_tanh([-2.0, 0.5, 2.0]).tolist()
        [-1.0, 0.5, 1.0]
    """
    return jax.nn.hard_tanh(jnp.asarray(x))


def tanh_shrink(x):
    """``x - tanh(x)``.

    Example:
        >>> tanh_shrink([-10.0, 0.0]).tolist()
        [-9.0, 0.0]
    """
    x = jnp.asarray(x)
    return x - jnp.tanh(x)


def soft_shrink(x, threshold=0.5):
    """``x`` moved towards 0 by ``threshold``, and 0 if it is closer than that.

    Example:
        >>> soft_shrink([-2.0, 0.25, 2.0]).tolist()
        [-1.5, 0.0, 1.5]
    """
    x = jnp.asarray(x)
    beyond = jnp.where(x < -threshold, x + threshold, 0.0)
    return jnp.where(x > threshold, x - threshold, beyond)


def hard_shrink(x, threshold=0.5):
    """``x`` if ``abs(x) > threshold``, else 0.

    Example:
        >>> hard_shrink([-2.0, 0.25, 2.0]).tolist()
        [-2.0, 0.0, 2.0]
    """
    x = jnp.asarray(x)
    return jnp.where(jnp.abs(x) > threshold, x, 0.0)


def threshold(x, threshold, default_value):
    """``x`` if it exceeds ``threshold``, else ``default_value``.

    Example:
        >>> threshold([-1.0, 2.0], 0.0, 7.0).tolist()
        [7.0, 2.0]
    """
    x = jnp.asarray(x)
    return jnp.where(x > threshold, x, default_value)


def softplus(x):
    """``log(1 + exp(x))``, without overflow.

    Example:
        >>> softplus([-1000.0, 1000.0]).tolist()
        [0.0, 1000.0]
    """
    return jax.nn.softplus(jnp.asarray(x))


def sparse_plus(x):
    """0 up to -1, ``(x + 1)² / 4`` up to 1, then ``x``.

    Example:
        >>> sparse_plus([-2.0, 0.0, 3.0]).tolist()
        [0.0, 0.25, 3.0]

    Source: Blondel et al., *Learning Classifiers with Fenchel-Young Losses*, 2019.
    """
    return jax.nn.sparse_plus(jnp.asarray(x))


def squareplus(x, b=4):
    """``(x + √(x² + b)) / 2``.

    Example:
        >>> squareplus([0.0, 1.5]).tolist()
        [1.0, 2.0]

    Source: Barron, *Squareplus: A Softplus-Like Algebraic Rectifier*, 2021.
    """
    return jax.nn.squareplus(jnp.asarray(x), b)


def softsign(x):
    """``x / (1 + abs(x))``.

    Example:
        >>> softsign([-3.0, 1.0]).tolist()
        [-0.75, 0.5]
    """
    return jax.nn.soft_sign(jnp.asarray(x))


def exponential(x):
    """``exp(x)``.

    Example:
        >>> exponential([0.0]).tolist()
        [1.0]
    """
    return jnp.exp(jnp.asarray(x))


def linear(x):
    """``x`` itself.

    Example:
        >>> linear(3)
        3
    """
    return x


def softmax(x, axis=-1):
    """``exp(x) / Σ exp(x)``: positive values that sum to one.

    Args:
        x: Input.
        axis: Axis, or tuple of axes, that the sum runs over.

    Raises:
        ShapeError: ``x`` is a scalar or has no such axis.

    Example:
        >>> softmax([[0.0, 0.0], [1000.0, 0.0]]).tolist()
        [[0.5, 0.5], [1.0, 0.0]]
    """
    x = _with_axis("softmax", x, axis)
    if isinstance(axis, int) and isinstance(x.shape[axis], int) and x.shape[axis] == 1:
        warnings.warn(
            f"softmax over axis {axis} of shape {tuple(x.shape)}: one value alone always "
            "becomes 1. Is sigmoid meant?",
            stacklevel=2,
        )
    return jax.nn.softmax(x, axis)


def log_softmax(x, axis=-1):
    """``x - log Σ exp(x)``, without overflow.

    Args:
        x: Input.
        axis: Axis, or tuple of axes, that the sum runs over.

    Raises:
        ShapeError: ``x`` is a scalar or has no such axis.

    Example:
        >>> log_softmax([1000.0, 0.0]).tolist()
        [0.0, -1000.0]
    """
    return jax.nn.log_softmax(_with_axis("log_softmax", x, axis), axis)


def sparsemax(x, axis=-1):
    """The closest point of the probability simplex; many of its values are 0.

    ``max(x - τ, 0)`` with the τ that makes the values sum to one.

    Args:
        x: Input.
        axis: Axis that sums to one.

    Raises:
        ShapeError: ``x`` is a scalar or has no such axis.

    Example:
        >>> sparsemax([2.0, 1.75, -1.0]).tolist()
        [0.625, 0.375, 0.0]

    Source: Martins & Astudillo, *From Softmax to Sparsemax*, 2016.
    """
    x = jnp.moveaxis(_with_axis("sparsemax", x, axis), axis, -1)
    x = x - jax.lax.stop_gradient(jnp.max(x, -1, keepdims=True))
    ordered = jnp.sort(x, axis=-1, descending=True)
    total = jnp.cumsum(ordered, axis=-1) - 1
    count = jnp.arange(1, x.shape[-1] + 1, dtype=total.dtype)
    support = count * ordered > total
    size = jnp.sum(support, -1, keepdims=True)
    tau = (jnp.sum(jnp.where(support, ordered, 0), -1, keepdims=True) - 1) / size
    return jnp.moveaxis(jnp.maximum(x - tau, 0), -1, axis)


def _with_axis(op: str, x: Any, axis: int | tuple[int, ...]) -> jax.Array:
    x = jnp.asarray(x)
    for one in axis if isinstance(axis, tuple) else (axis,):
        if not -x.ndim <= one < x.ndim:
            raise ShapeError(
                op, f"the input has no axis {one}", {"x": tuple(x.shape), "axis": axis}
            )
    return x


_functions: tuple[Callable[..., Any], ...] = (
    celu, elu, exponential, gelu, glu, hard_shrink, hard_sigmoid, hard_silu, hard_tanh,
    leaky_relu, linear, log_sigmoid, log_softmax, mish, relu, relu6, selu, sigmoid, silu,
    soft_shrink, softmax, softplus, softsign, sparse_plus, sparse_sigmoid, sparsemax,
    squareplus, tanh, tanh_shrink, threshold,
)  # fmt: skip
swish, hard_swish = silu, hard_silu
_names = {f.__name__: f for f in _functions} | {"swish": silu, "hard_swish": hard_silu}

__all__ = ["deserialize", "get", "serialize", *sorted(_names)]

for _function in _functions:
    registry.register(_function, package="activations")
for _name in (
    "celu elu gelu glu hard_sigmoid hard_silu hard_tanh identity leaky_relu log_sigmoid "
    "log_softmax mish relu relu6 selu sigmoid silu soft_sign softmax softplus "
    "sparse_plus sparse_sigmoid squareplus tanh"
).split():  # a model made with jax.nn.relu can be saved too
    registry.register(getattr(jax.nn, _name), package="jax.nn", name=_name)


def get(identifier: Any) -> Callable[..., Any]:
    """The activation that an identifier stands for.

    Args:
        identifier: A name, a configuration, any callable (a function, a layer), or
            ``None`` for :func:`linear`.

    Raises:
        UnknownNameError: Nothing has that name.
        ArgumentError: The identifier is none of the above.

    Example:
        >>> get("swish") is silu, get(None) is linear, get(jnp.sin) is jnp.sin
        (True, True, True)
    """
    if identifier is None:
        return linear
    if isinstance(identifier, str):
        return _lookup(identifier)
    if isinstance(identifier, Mapping):
        return deserialize(identifier)
    if isinstance(identifier, type):
        identifier = identifier()
    if callable(identifier):
        return identifier
    raise ArgumentError(
        "activations.get",
        f"{identifier!r} is no activation",
        hint="Pass a name such as 'relu', a function, or a layer.",
    )


def serialize(activation: Any) -> Any:
    """The name of an activation, or the configuration of one that is not built in.

    Raises:
        ArgumentError: It is a function that is not registered.

    Example:
        >>> serialize(swish)
        'silu'
    """
    name = getattr(activation, "__name__", None)
    if name and _names.get(name) is activation:
        return name
    return registry.serialize(activation)


def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The inverse of :func:`serialize`; also reads Keras' configurations.

    Args:
        config: A name or configuration.
        custom_objects: Further classes and functions by name.

    Example:
        >>> deserialize({"class_name": "function", "config": "relu"}) is relu
        True
    """
    with registry.custom_objects(custom_objects):
        if isinstance(config, Mapping):
            if config.get("class_name") in ("function", "__function__"):
                return get(config.get("config"))
            if "class_name" not in config or "config" not in config:
                raise ArgumentError(
                    "activations.deserialize",
                    "a configuration needs 'class_name' and 'config'",
                    {"received": dict(config)},
                )
            config = registry.deserialize(config)
        return get(config)


def _lookup(name: str) -> Callable[..., Any]:
    if name in _names:
        return _names[name]
    try:
        found = registry.lookup(name, "activation")
    except UnknownNameError:
        found = None
    if not callable(found) or isinstance(found, type):
        raise unknown_name("activation", name, _names, op="activations.get")
    return found
