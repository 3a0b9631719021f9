"""``exburn.Distiller``: a student that learns from targets and from a teacher."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax

from exburn.compression.soft_targets import soft_divergence
from exburn.core import forward_context, registry
from exburn.core.checks import check_number
from exburn.core.symbolic_shapes import public_shape
from exburn.distillation import Distiller as KerasDistiller
from exburn.distillation import FeatureDistillation
from exburn.errors import ArgumentError, NotBuiltError, ShapeError
from exburn.layers import Dense, Identity
from exburn.models import Model
from exburn.models.hooks import path_of_layer
from exburn.models.output_kinds import OutputKind, output_kinds
from exburn.models.saving import compile_like
from exburn.module.building import infer, inspect_call, materialize
from exburn.module.variable import Static


class Distiller(KerasDistiller):
    """Trains a student on the targets, on a teacher's outputs, and on its features.

    ``loss = α L(y, s) + (1 - α) (D(t, s) + w Σ mean((fₜ - P fₛ)²))``, with ``s`` and
    ``t`` the outputs of student and teacher, ``L`` the loss of ``compile``, and ``D``
    the divergence of the outputs at a temperature ``T``: ``T² KL(softmax(zₜ / T) ‖
    softmax(zₛ / T))`` of a classifier's logits ``z``, which are taken back from
    probabilities if a model puts out those; the same of sigmoids; for a regression the
    squared difference. ``f`` are outputs of layers. ``P`` is a linear layer, trained
    with the student, that makes as many features as the teacher has; nothing, if the
    student has as many.

    It is compiled, fitted, evaluated, saved and resumed as any model; ``predict`` is
    the student's. The teacher is frozen, computes as in inference and within the same
    compiled step; ``teacher.unfreeze()`` trains it again. The student is the given
    object: it can be used by itself at any time, and knows nothing of the teacher.

    Args:
        student: The model that is trained. If it is compiled, so is the distiller,
            alike; else ``compile`` the distiller, and the student is compiled alike.
        teacher: A trained model with the same inputs and outputs.
        temperature: T, above 0: the higher, the more classes count that the teacher
            thinks unlikely.
        alpha: α, from 0 to 1: the weight of the targets.
        features: Layers whose outputs are compared: names or paths of the student's to
            those of the teacher's. They may differ in the size of their last axis.
        feature_weight: w.
        name: Name of the model.
        **kwargs: As of ``Model``.

    Raises:
        ArgumentError: Something is no model, a number is out of range, or a layer is
            not there.
        NotBuiltError: The teacher has no weights yet.
        ShapeError: Outputs of the models, or features, differ in their shapes.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> from exburn.layers import Dense, Input
        >>> x, y = np.eye(8, dtype="float32"), np.arange(8) % 3
        >>> teacher = exburn.Sequential([Input((8,)), Dense(32, "relu"), Dense(3)])
        >>> student = exburn.Sequential([Input((8,)), Dense(4, "relu"), Dense(3)])
        >>> student.compile("adam", "cross_entropy", metrics=["accuracy"])
        >>> distiller = exburn.Distiller(student, teacher, features={"dense": "dense"})
        >>> history = distiller.fit(x, y, epochs=2, verbose=0)
        >>> student.predict(x, verbose=0).shape
        (8, 3)

    Source: Hinton et al., *Distilling the Knowledge in a Neural Network*, 2015; Romero
    et al., *FitNets: Hints for Thin Deep Nets*, 2015.
    """

    def __init__(
        self,
        student: Model,
        teacher: Model,
        temperature: float = 4.0,
        alpha: float = 0.5,
        features: Mapping[str, str] | None = None,
        feature_weight: float = 1.0,
        name: str | None = "distiller",
        **kwargs: Any,
    ):
        number = check_number("Distiller", "alpha", alpha, 0, 1)
        pairs = _as_pairs(features)
        hints = [FeatureDistillation("mse", of, mine) for mine, of in pairs.items()]
        super().__init__(teacher, student, hints, None, number, name=name, **kwargs)
        self.temperature = check_number(
            "Distiller", "temperature", temperature, open_low=True
        )
        self.feature_weight = check_number(
            "Distiller", "feature_weight", feature_weight
        )
        self._features, self._kinds = Static(pairs), Static(None)
        self.projections: list[Any] = []
        if _waits(teacher):
            return
        infer(self, *_traced(teacher))
        materialize(self)
        if student.loss is not None:
            compile_like(self, student, {})

    def build(self, input_shape: Any = None) -> None:
        """Builds what is not: the models of a class of one's own that a file names."""
        for model in (self.teacher, self.student):
            model.build(input_shape)
        self._compare_outputs()
        self.projections = self._make_projections()

    @property
    def alpha(self) -> float:
        """The weight of the targets."""
        return self.student_loss_weight

    @property
    def features(self) -> dict[str, str]:
        """Layers of the student, and those of the teacher that they learn from."""
        return dict(self._features.value)

    def compile(self, optimizer="adam", loss=None, metrics=None, **kwargs):
        """Sets how the student trains; the arguments are those of ``Model.compile``.

        Raises:
            ArgumentError: There is no loss, or the teacher's outputs are of another
                kind than the student's.
        """
        super().compile(optimizer, loss=loss, metrics=metrics, **kwargs)
        self._kinds = Static(_compare_kinds(self.teacher, self.student, loss))
        if not self.student.compiled:
            compile_like(self.student, self, {})

    def _check_models(self, teacher: Any, student: Any) -> None:
        """Builds the student as the teacher is."""
        _require_models(teacher, student)
        if not _waits(teacher) and not student.built:
            infer(student, *_traced(teacher))
            materialize(student)

    def _compare_outputs(self) -> None:
        shapes = [_output_shapes(model) for model in (self.student, self.teacher)]
        if shapes[0] != shapes[1]:
            raise ShapeError(
                "Distiller",
                "student and teacher must have outputs of one shape",
                {"student": shapes[0], "teacher": shapes[1]},
                hint="Give the student a last layer as wide as the teacher's.",
            )

    def _make_projections(self) -> list[Any]:
        """A layer for each pair of features, from the student's to the teacher's."""
        found = []
        for mine, taught in self.features.items():
            shape = _feature_shape(self.student, mine)
            other = _feature_shape(self.teacher, taught)
            if len(shape) < 2 or shape[1:-1] != other[1:-1] or len(shape) != len(other):
                raise ShapeError(
                    "Distiller",
                    "features must have one shape, up to the last axis",
                    {f"student's {mine}": shape, f"teacher's {taught}": other},
                    hint="Choose layers at the same depth: before the same pooling.",
                )
            same = shape[-1] == other[-1]
            layer = Identity() if same else Dense(other[-1], use_bias=False)
            layer.build(shape)
            found.append(layer)
        return found

    def _distance(self, x: Any, y_pred: Any, training: bool) -> Any:
        """D, and w times the distances of the features."""
        taught, theirs = self._observe("teacher", x, training=False)
        _, mine = self._observe("student", x, training=training)
        total: Any = 0.0
        outputs = zip(*map(jax.tree.leaves, (taught, y_pred)), strict=True)
        ctx = forward_context.current()
        each = zip(outputs, self._kinds.value, strict=True)
        for (teacher, student), (taught_kind, kind) in each:
            mask = None if ctx is None else ctx.mask_of(student)
            total += soft_divergence(
                teacher, student, self.temperature, taught_kind, kind, mask
            )
        for loss, project in zip(
            self.distillation_losses, self.projections, strict=True
        ):
            teacher, student = self._compared(loss, theirs, mine, taught, y_pred)
            value = loss.compute_loss(teacher, project(student))
            total += self.feature_weight * value
        return total

    def get_config(self) -> dict[str, Any]:
        return {
            "student": registry.serialize(self.student),
            "teacher": registry.serialize(self.teacher),
            "temperature": self.temperature,
            "alpha": self.alpha,
            "features": self.features or None,
            "feature_weight": self.feature_weight,
            "name": self.name,
            "trainable": self.trainable,
        }


registry.register(Distiller, package="compression")


def _as_pairs(features: Any) -> dict[str, str]:
    if features is None:
        return {}
    if not isinstance(features, Mapping) or not all(
        isinstance(name, str) for pair in features.items() for name in pair
    ):
        raise ArgumentError(
            "Distiller",
            "features are names of the student's layers to those of the teacher's, "
            f"received {features!r}",
            hint='features={"block_2": "stage_3"}.',
        )
    return dict(features)


def _require_models(teacher: Any, student: Any) -> None:
    for which, model in (("teacher", teacher), ("student", student)):
        if not isinstance(model, Model):
            raise ArgumentError(
                "Distiller",
                f"the {which} must be a model, received {type(model).__name__}",
            )
        if model.reads_strings:
            raise ArgumentError(
                "Distiller",
                f"the {which} looks up strings in front of its program",
                hint="Distil the models behind the lookups, on encode_inputs(x).",
            )
    if teacher is student:
        raise ArgumentError(
            "Distiller",
            "the student is the teacher",
            hint="teacher = student.clone() keeps what it is now.",
        )


def _waits(teacher: Model) -> bool:
    """Whether the file that is being read will tell how the teacher is called."""
    return registry.from_file() and teacher._meta.value.traced is None


def _traced(teacher: Model) -> Any:
    """How the teacher is called, and the specs that it is called on."""
    traced = teacher._meta.value.traced
    if traced is None or not teacher.built:
        raise NotBuiltError(
            "Distiller",
            f"the teacher {teacher.name!r} has not been called yet",
            hint="Train it, or load it; or call it once on data.",
        )
    return traced


def _output_shapes(model: Model) -> Any:
    """Shapes of what a model puts out, batch axis aside, in its structure."""
    inspected = inspect_call(model)
    assert inspected is not None
    specs = inspected[1][""]
    return jax.tree.map(lambda spec: public_shape(spec.shape)[1:], specs)


def _feature_shape(model: Model, layer: str) -> tuple[Any, ...]:
    inspected = inspect_call(model)
    assert inspected is not None
    spec = inspected[1].get(path_of_layer(model, layer))
    shape = getattr(spec, "shape", None)
    if shape is None:
        raise ArgumentError(
            "Distiller",
            f"the layer {layer!r} of {model.name!r} does not put out one array",
            hint="Choose a layer that is called in the open, with one output.",
        )
    return public_shape(shape)


def _compare_kinds(
    teacher: Model, student: Model, loss: Any
) -> tuple[tuple[OutputKind, OutputKind], ...]:
    """What both put out, for each output: the student's loss says what is compared."""
    learnt = output_kinds(student, loss, op="Distiller")
    own = loss if teacher.loss is None else teacher.loss
    taught = output_kinds(teacher, own, op="Distiller")
    pairs = []
    for theirs, mine in zip(taught, learnt, strict=True):
        if theirs.family == "values" != mine.family:  # no loss tells: as the student's
            theirs = dataclasses.replace(theirs, family=mine.family, logits=True)
        if mine.family == "values":
            theirs = mine
        elif theirs.family != mine.family:
            raise ArgumentError(
                "Distiller",
                "teacher and student put out different things",
                {"teacher": f"{theirs.family}", "student": f"{mine.family}"},
                hint="A softmax is one distribution over classes, a sigmoid a "
                "probability for each: compile with a loss that suits the teacher.",
            )
        pairs.append((theirs, mine))
    return tuple(pairs)
