"""The distance of a student's outputs from a teacher's, softened by a temperature."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn.losses.probabilities import clip_probability
from exburn.losses.reduction import reduce_values
from exburn.models.output_kinds import OutputKind


def soft_divergence(
    teacher: Any,
    student: Any,
    temperature: float,
    teacher_kind: OutputKind,
    student_kind: OutputKind,
    mask: Any = None,
) -> jax.Array:
    """The divergence of one output of a student from the teacher's, a scalar.

    With ``T`` the temperature, and ``z`` the logits: ``T² KL(softmax(zₜ / T) ‖
    softmax(zₛ / T))`` for distributions; the same of ``sigmoid(z / T)`` for entries
    that are probabilities of their own; the squared difference for other values. ``T²``
    keeps the size of the gradient. It is the mean over rows, and over positions that
    the mask keeps.

    Args:
        teacher, student: [batch, …, classes] Outputs.
        temperature: T.
        teacher_kind, student_kind: What they are; logits of probabilities are found.
        mask: [batch, …] Positions that count; all by default.

    Example:
        >>> kind = OutputKind("softmax", True, (None, 2))
        >>> z = jnp.array([[2.0, 0.0]])
        >>> round(float(soft_divergence(z, 0 * z, 2.0, kind, kind)), 4)  # 4 KL(p, 1/2)
        0.4438

    Source: Hinton et al., *Distilling the Knowledge in a Neural Network*, 2015.
    """
    family = student_kind.family
    taught, learnt = _logits(teacher, teacher_kind), _logits(student, student_kind)
    if family == "values":
        values = _over_entries(jnp.square(taught - learnt))
    else:
        taught, learnt = taught / temperature, learnt / temperature
        divergence = _of_softmax if family == "softmax" else _of_sigmoid
        values = divergence(taught, learnt) * temperature**2
    if mask is not None and jnp.shape(mask) != values.shape:
        mask = None
    return reduce_values(values, "sum_over_batch_size", valid=mask)


def _of_softmax(taught: jax.Array, learnt: jax.Array) -> jax.Array:
    """[…, classes] logits → […] divergences."""
    log_p, log_q = jax.nn.log_softmax(taught), jax.nn.log_softmax(learnt)
    p = jnp.exp(log_p)
    # A class that the teacher rules out, by a logit of -inf, adds nothing.
    return jnp.sum(jnp.where(p > 0, p * (log_p - log_q), 0), axis=-1)


def _of_sigmoid(taught: jax.Array, learnt: jax.Array) -> jax.Array:
    """[…, entries] logits → […] mean divergences."""
    p, log = jax.nn.sigmoid(taught), jax.nn.log_sigmoid
    yes, no = log(taught) - log(learnt), log(-taught) - log(-learnt)
    return _over_entries(p * yes + (1 - p) * no)


def _over_entries(values: jax.Array) -> jax.Array:
    return jnp.mean(values, axis=-1) if values.ndim > 1 else values


def _logits(outputs: Any, kind: OutputKind) -> jax.Array:
    """Logits of logits or probabilities; values as they are; float32 at least."""
    outputs = jnp.asarray(outputs)
    outputs = outputs.astype(jnp.promote_types(outputs.dtype, jnp.float32))
    if kind.logits or kind.family == "values":
        return outputs
    p = clip_probability(outputs)
    return jnp.log(p) if kind.family == "softmax" else jnp.log(p) - jnp.log1p(-p)
