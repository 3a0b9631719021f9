"""Logarithms of probabilities: stable from logits, else clipped as Keras does."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from exburn.core.checks import is_known
from exburn.losses.contract.shapes import as_float
from exburn.runtime.kernels.cross_entropy import is_long, log_sum_exp, without_spare

EPSILON = 1e-7


@jax.custom_jvp
def clip_probability(probability: jax.Array) -> jax.Array:
    """A probability at least 1e-7 from 0 and from 1: both logarithms are finite."""
    return jnp.clip(probability, EPSILON, 1 - EPSILON)


@clip_probability.defjvp
def _clipped_jvp(primals, tangents):
    (p,), (t,) = primals, tangents
    return clip_probability(p), _inside(p) * t


def _inside(p: jax.Array) -> jax.Array:
    """The derivative of ``clip_probability``: 1, 0, or a half at either end, as in JAX.

    Without divisions, which JAX's has: on a CPU each is a kernel of its own, and takes
    as long to compile as a layer. So have the derivatives of a share's logarithm.
    """
    above = 0.5 * (jnp.sign(p - EPSILON) + 1)
    return above * 0.5 * (jnp.sign(1 - EPSILON - p) + 1)


@jax.custom_jvp
def _log_share(part: jax.Array, total: jax.Array) -> jax.Array:
    return jnp.log(clip_probability(part / total))


@_log_share.defjvp
def _log_share_jvp(primals, tangents):
    (part, total), (part_dot, total_dot) = primals, tangents
    share = part / total
    slope = _inside(share) / (clip_probability(share) * total)
    return _log_share(part, total), slope * (part_dot - share * total_dot)


def normalize_probabilities(probabilities: jax.Array, axis: int) -> jax.Array:
    """The probabilities, made to sum to 1 along ``axis``."""
    return probabilities / jnp.sum(probabilities, axis=axis, keepdims=True)


def log_distribution(y_pred: jax.Array, from_logits: bool, axis: int) -> jax.Array:
    """Log-probabilities of all classes."""
    if from_logits:
        return jax.nn.log_softmax(y_pred, axis=axis)
    return _log_share(y_pred, jnp.sum(y_pred, axis=axis, keepdims=True))


def label_log_likelihood(
    labels: jax.Array,
    y_pred: jax.Array,
    from_logits: bool,
    axis: int,
    label_smoothing: float = 0.0,
) -> jax.Array:
    """Log-probability of each row's label, with no one-hot array in between.

    A label out of range gives NaN, never the value of another class. With
    ``label_smoothing`` the mean over all classes is mixed in.

    Example:
        >>> x = jnp.zeros((1, 4))
        >>> float(jnp.exp(label_log_likelihood(jnp.array([2]), x, True, -1)[0]))
        0.25
    """

    def of_label(x: jax.Array) -> jax.Array:
        return chosen(x, labels, axis)

    scores, y_pred = y_pred, without_spare(as_float(y_pred))
    plain = is_known(label_smoothing, 0)
    if from_logits and plain and is_long(scores, axis):
        return of_label(y_pred) - log_sum_exp(y_pred, scores, labels)
    if from_logits:
        top = jax.lax.stop_gradient(jnp.max(y_pred, axis=axis, keepdims=True))
        shifted = y_pred - top
        log_total = jnp.log(jnp.sum(jnp.exp(shifted), axis=axis))
        value = of_label(shifted) - log_total
        if plain:
            return value
        mean = jnp.mean(shifted, axis=axis) - log_total
    else:
        value = _log_share(of_label(y_pred), jnp.sum(y_pred, axis=axis))
        if plain:
            return value
        mean = jnp.mean(log_distribution(y_pred, from_logits, axis), axis=axis)
    return (1 - label_smoothing) * value + label_smoothing * mean


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def chosen(x: jax.Array, labels: jax.Array, axis: int) -> jax.Array:
    """Each row's entry at its label; NaN if a label is no class."""
    # take_along_axis fills with NaN beyond the end, but wraps negative indices.
    index = jnp.where(labels < 0, x.shape[axis], labels)
    taken = jnp.take_along_axis(x, jnp.expand_dims(index, axis), axis=axis)
    return jnp.squeeze(taken, axis)


@chosen.defjvp
def _chosen_jvp(axis, primals, tangents):
    # Not take_along_axis again: its transpose is a scatter into an array of zeros, this
    # one's is elementwise, and part of whatever comes before.
    (x, labels), (t, _) = primals, tangents
    places = jax.lax.broadcasted_iota(jnp.int32, x.shape, axis % x.ndim)
    mine = places == jnp.expand_dims(labels, axis)
    return chosen(x, labels, axis), jnp.sum(jnp.where(mine, t, 0), axis=axis)


def weighted_log(weight: jax.Array, log: jax.Array) -> jax.Array:
    """``weight · log``, and 0 where the weight is 0 although the log is -inf."""
    return weight * jnp.where(weight == 0, 0, log)


def smooth_targets(y_true: jax.Array, amount: float, parts: int) -> jax.Array:
    """Targets mixed with the uniform distribution over ``parts``."""
    if is_known(amount, 0):
        return y_true
    return y_true * (1 - amount) + amount / parts
