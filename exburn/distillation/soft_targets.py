"""The distance of a student's outputs from a teacher's, softened by a temperature."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core import forward_context
from exburn.core.checks import check_number
from exburn.core.registry import register_builtin
from exburn.distillation.losses import DistillationLoss
from exburn.errors import ArgumentError
from exburn.losses.contract.probabilities import clip_probability
from exburn.losses.contract.reduction import reduce_values
from exburn.models.output_kinds import OutputKind, output_kinds


@register_builtin
class SoftTargets(DistillationLoss):
    """The divergence of the student's outputs from the teacher's, at a temperature.

    ``T² KL(softmax(zₜ / T) ‖ softmax(zₛ / T))`` of a classifier's logits ``z``, which
    are taken back from probabilities if a model puts out those; the same of sigmoids;
    for a regression the squared difference. What a model puts out is told by its last
    function and its loss. Several outputs are compared one by one, and their values
    added; positions that a mask leaves out do not count.

    Args:
        temperature: T, above 0: the higher, the more classes count that the teacher
            thinks unlikely.

    Raises:
        ArgumentError: The temperature is no number above 0; in a ``Distiller``,
            teacher and student put out different kinds of things.

    Example:
        >>> loss = SoftTargets(temperature=2.0)  # by itself, of logits
        >>> teacher, student = jnp.array([[2.0, 0.0]]), jnp.array([[0.0, 0.0]])
        >>> round(float(loss.compute_loss(teacher, student)), 4)  # 4 KL(p, 1/2)
        0.4438

    Source: Hinton et al., *Distilling the Knowledge in a Neural Network*, 2015.
    """

    def __init__(self, temperature: float = 4.0):
        self.temperature = check_number(
            "SoftTargets", "temperature", temperature, open_low=True
        )
        self._kinds: tuple[tuple[OutputKind, OutputKind], ...] | None = None

    def for_models(self, teacher: Any, student: Any, loss: Any) -> SoftTargets:
        """A copy that knows the kinds of both models' outputs."""
        loss_for_both = copy.copy(self)
        loss_for_both._kinds = _compare_kinds(teacher, student, loss)
        return loss_for_both

    def compute_loss(
        self, teacher_outputs: Any, student_outputs: Any, **kwargs: Any
    ) -> Any:
        outputs = [jax.tree.leaves(o) for o in (teacher_outputs, student_outputs)]
        logits = OutputKind("softmax", True, ())
        kinds = self._kinds or ((logits, logits),) * len(outputs[1])
        ctx = forward_context.current()
        total: Any = 0.0
        for teacher, student, (theirs, own) in zip(*outputs, kinds, strict=True):
            mask = None if ctx is None else ctx.mask_of(student)
            total += soft_divergence(
                teacher, student, self.temperature, theirs, own, mask
            )
        return total

    def get_config(self) -> dict[str, Any]:
        return {"temperature": self.temperature}


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
        teacher_kind, student_kind: What they are; logits of probabilities are found.
        mask: [batch, …] Positions that count; all by default.

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


def _compare_kinds(
    teacher: Any, student: Any, loss: Any
) -> tuple[tuple[OutputKind, OutputKind], ...]:
    """Kinds of both models' outputs: the student's loss says what is compared."""
    learnt = output_kinds(student, loss, op="SoftTargets")
    own = loss if teacher.loss is None else teacher.loss
    taught = output_kinds(teacher, own, op="SoftTargets")
    pairs = []
    for theirs, mine in zip(taught, learnt, strict=True):
        if theirs.family == "values" != mine.family:  # no loss tells: as the student's
            theirs = dataclasses.replace(theirs, family=mine.family, logits=True)
        if mine.family == "values":
            theirs = mine
        elif theirs.family != mine.family:
            raise ArgumentError(
                "SoftTargets",
                "teacher and student put out different things",
                {"teacher": f"{theirs.family}", "student": f"{mine.family}"},
                hint="A softmax is one distribution over classes, a sigmoid a "
                "probability for each: compile with a loss that suits the teacher.",
            )
        pairs.append((theirs, mine))
    return tuple(pairs)
