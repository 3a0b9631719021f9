"""Random numbers with Keras' arguments: ``normal((2, 3), seed=1)``.

Where the numbers come from depends on ``seed`` and on where the call stands:

- Inside ExBurn's programs (``fit``, ``evaluate``, ``predict``) every draw comes from
  the key of the step, so that it differs from step to step and is the same in a run
  that is repeated or resumed. An integer seed or a :class:`SeedGenerator` only tells
  the streams apart there. In a compiled program an integer would otherwise give every
  step the same "random" numbers. ``exburn.key_scope(key)`` does the same by hand.
- Elsewhere an integer gives the same numbers at every call, a generator gives other
  numbers at every call, and ``None`` continues the stream of ``set_random_seed``. Under
  ``jax.jit`` a generator or ``None`` needs a key: ``with exburn.key_scope(key):``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import nnx

from exburn.config import floatx
from exburn.core.annotations import DType, Tensor
from exburn.core.missing_names import refuser
from exburn.core.precision import is_float, standardize_dtype
from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary
from exburn.module.seed_generator import SeedGenerator, draw_key

__all__ = [
    "SeedGenerator",
    "beta",
    "binomial",
    "categorical",
    "dropout",
    "gamma",
    "normal",
    "randint",
    "shuffle",
    "truncated_normal",
    "uniform",
]


def _float(op: str, dtype: Any) -> Any:
    name = floatx() if dtype is None else standardize_dtype(dtype)
    if not is_float(name):
        raise ArgumentError(op, f"a floating dtype is needed, not {name}")
    return jnp.dtype(name)


@api_boundary
def normal(
    shape: Sequence[int],
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: DType = None,
    seed: int | SeedGenerator | None = None,
) -> jax.Array:
    """Draws from the normal distribution.

    Args:
        shape: Shape of the result.
        mean: Mean.
        stddev: Standard deviation.
        dtype: Floating dtype; ``config.floatx()`` by default.
        seed: ``None``, an integer or a :class:`SeedGenerator`; see the module.

    Raises:
        ArgumentError: A dtype that is not floating, or a seed that is none.

    Example:
        >>> bool((normal((4,), seed=3) == normal((4,), seed=3)).all())
        True
    """
    sample = jax.random.normal(draw_key(seed), shape, _float("normal", dtype))
    return sample * stddev + mean


@api_boundary
def truncated_normal(
    shape: Sequence[int],
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: DType = None,
    seed: int | SeedGenerator | None = None,
) -> jax.Array:
    """Draws from the normal distribution, cut off two deviations from the mean.

    Args:
        shape, mean, stddev, dtype, seed: As in :func:`normal`.

    Example:
        >>> bool((abs(truncated_normal((100,), stddev=0.1, seed=1)) <= 0.2).all())
        True
    """
    dtype = _float("truncated_normal", dtype)
    sample = jax.random.truncated_normal(draw_key(seed), -2.0, 2.0, shape, dtype)
    return sample * stddev + mean


@api_boundary
def uniform(
    shape: Sequence[int],
    minval: Tensor = 0.0,
    maxval: Tensor = 1.0,
    dtype: DType = None,
    seed: int | SeedGenerator | None = None,
) -> jax.Array:
    """Draws evenly from ``[minval, maxval)``.

    Args:
        shape: Shape of the result.
        minval, maxval: The bounds.
        dtype: ``config.floatx()`` by default; an integer dtype gives whole numbers.
        seed: ``None``, an integer or a :class:`SeedGenerator`; see the module.

    Example:
        >>> uniform((2, 3), seed=1).shape
        (2, 3)
    """
    if dtype is not None and not is_float(standardize_dtype(dtype)):
        return randint(shape, int(minval), int(maxval), dtype, seed)
    dtype = _float("uniform", dtype)
    return jax.random.uniform(draw_key(seed), shape, dtype, minval, maxval)


@api_boundary
def randint(
    shape: Sequence[int],
    minval: Tensor,
    maxval: Tensor,
    dtype: DType = "int32",
    seed: int | SeedGenerator | None = None,
) -> jax.Array:
    """Draws whole numbers evenly from ``[minval, maxval)``.

    Args:
        shape: Shape of the result.
        minval, maxval: The bounds.
        dtype: An integer dtype.
        seed: ``None``, an integer or a :class:`SeedGenerator`; see the module.

    Raises:
        ArgumentError: A dtype that is no integer one.

    Example:
        >>> sorted(set(randint((100,), 1, 4, seed=1).tolist()))
        [1, 2, 3]
    """
    name = standardize_dtype(dtype)
    if not jnp.issubdtype(jnp.dtype(name), jnp.integer):
        raise ArgumentError("randint", f"an integer dtype is needed, not {name}")
    return jax.random.randint(draw_key(seed), shape, minval, maxval, name)


@api_boundary
def categorical(
    logits: Tensor,
    num_samples: int,
    dtype: DType = "int32",
    seed: int | SeedGenerator | None = None,
) -> jax.Array:
    """Draws classes for every row of logits.

    Args:
        logits: Logarithms of the classes' probabilities, up to a constant.
        num_samples: Draws a row.
        dtype: An integer dtype.
        seed: ``None``, an integer or a :class:`SeedGenerator`; see the module.

    Shape:
        logits: [batch, classes] → [batch, num_samples]

    Raises:
        ArgumentError: The logits' rank is not 2.

    Example:
        >>> categorical([[0.0, -1e9]], 3, seed=1).tolist()
        [[0, 0, 0]]
    """
    logits = jnp.asarray(logits)
    if logits.ndim != 2:
        raise ArgumentError(
            "categorical", f"logits are [batch, classes], received {logits.shape}"
        )
    shape = (logits.shape[0], num_samples)
    key = draw_key(seed)
    return jax.random.categorical(key, logits[..., None], axis=1, shape=shape).astype(
        standardize_dtype(dtype)
    )


@api_boundary
def dropout(
    inputs: Tensor,
    rate: float,
    noise_shape: Sequence[int | None] | None = None,
    seed: int | SeedGenerator | None = None,
) -> jax.Array:
    """Sets a random fraction of the entries to 0 and scales the others up.

    Args:
        inputs: An array.
        rate: Probability that an entry is dropped, from 0 to 1.
        noise_shape: Shape of the random choice, broadcast over the input; ``None`` in
            it stands for the input's size.
        seed: ``None``, an integer or a :class:`SeedGenerator`; see the module.

    Raises:
        ArgumentError: ``rate`` is outside of [0, 1].

    Example:
        >>> set(dropout(jnp.ones(100), 0.5, seed=1).tolist()) == {0.0, 2.0}
        True
    """
    if not 0 <= rate <= 1:
        raise ArgumentError("dropout", f"rate is from 0 to 1, received {rate}")
    inputs = inputs.get_value() if isinstance(inputs, nnx.Variable) else inputs
    inputs = jnp.asarray(inputs)
    if rate == 0:
        return inputs
    if rate == 1:
        return jnp.zeros_like(inputs)
    shape = inputs.shape
    if noise_shape is not None:
        sizes = zip(noise_shape, shape, strict=True)
        shape = tuple(size if own is None else own for own, size in sizes)
    mask = jax.random.bernoulli(draw_key(seed), 1 - rate, shape)
    return jnp.where(mask, inputs / (1 - rate), 0).astype(inputs.dtype)


@api_boundary
def shuffle(
    x: Tensor, axis: int = 0, seed: int | SeedGenerator | None = None
) -> jax.Array:
    """The slices along an axis in random order.

    Args:
        x: An array.
        axis: The axis that is permuted.
        seed: ``None``, an integer or a :class:`SeedGenerator`; see the module.

    Example:
        >>> sorted(shuffle(jnp.arange(4), seed=1).tolist())
        [0, 1, 2, 3]
    """
    return jax.random.permutation(draw_key(seed), jnp.asarray(x), axis)


@api_boundary
def gamma(
    shape: Sequence[int],
    alpha: Tensor,
    dtype: DType = None,
    seed: int | SeedGenerator | None = None,
) -> jax.Array:
    """Draws from the gamma distribution of shape ``alpha`` and scale 1.

    Args:
        shape: Shape of the result.
        alpha: Positive, broadcast to the shape.
        dtype: Floating dtype; ``config.floatx()`` by default.
        seed: ``None``, an integer or a :class:`SeedGenerator`; see the module.

    Example:
        >>> bool((gamma((5,), 2.0, seed=1) > 0).all())
        True
    """
    dtype = _float("gamma", dtype)
    return jax.random.gamma(draw_key(seed), jnp.asarray(alpha), shape, dtype)


@api_boundary
def beta(
    shape: Sequence[int],
    alpha: Tensor,
    beta: Tensor,
    dtype: DType = None,
    seed: int | SeedGenerator | None = None,
) -> jax.Array:
    """Draws from the beta distribution.

    Args:
        shape: Shape of the result.
        alpha, beta: Positive, broadcast to the shape.
        dtype: Floating dtype; ``config.floatx()`` by default.
        seed: ``None``, an integer or a :class:`SeedGenerator`; see the module.

    Example:
        >>> bool((beta((5,), 2.0, 3.0, seed=1) < 1).all())
        True
    """
    dtype = _float("beta", dtype)
    a, b = jnp.asarray(alpha), jnp.asarray(beta)
    return jax.random.beta(draw_key(seed), a, b, shape, dtype)


@api_boundary
def binomial(
    shape: Sequence[int],
    counts: Tensor,
    probabilities: Tensor,
    dtype: DType = None,
    seed: int | SeedGenerator | None = None,
) -> jax.Array:
    """Draws from the binomial distribution.

    Args:
        shape: Shape of the result.
        counts: Number of trials, broadcast to the shape.
        probabilities: Probability of a success, broadcast to the shape.
        dtype: Floating dtype; ``config.floatx()`` by default.
        seed: ``None``, an integer or a :class:`SeedGenerator`; see the module.

    Example:
        >>> binomial((3,), 4, 1.0, seed=1).tolist()
        [4.0, 4.0, 4.0]
    """
    dtype = _float("binomial", dtype)
    n, p = jnp.asarray(counts), jnp.asarray(probabilities)
    return jax.random.binomial(draw_key(seed), n, p, shape, dtype)


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
