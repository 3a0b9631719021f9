"""The model that trains a student on its targets and its teacher's outputs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import jax

from exburn.core import forward_context, registry
from exburn.core.checks import check_number
from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import public_shape
from exburn.distillation.losses import DistillationLoss
from exburn.errors import ArgumentError, NotBuiltError, ShapeError
from exburn.layers import Identity
from exburn.metrics import Mean
from exburn.models import Model
from exburn.models.copies import compile_like, hand_over
from exburn.models.hooks import path_of_layer
from exburn.module.building import infer, inspect_call, materialize
from exburn.module.forward_hooks import Capture
from exburn.module.layer_options import ContainerOptions
from exburn.module.traversal import module_paths
from exburn.module.variable import Static


def _like_fit(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that is documented as ``Model.fit`` is."""
    return functools.wraps(Model.fit)(method)


@register_builtin
class Distiller(Model):
    """Trains a student on what a teacher puts out, and on the targets.

    ``loss = w L(y, student) + (1 - w) Σ wᵢ Dᵢ(teacher, student)`` with ``w`` the weight
    of the student's own loss, which ``compile`` is given, penalties included. Logs have
    the parts, too: ``student_loss``, ``distillation_loss`` and ``total_loss``.

    A distiller is compiled, fitted, evaluated, saved and resumed as any model;
    ``predict`` is the student's. The teacher is frozen, and computes as in inference
    within the same compiled step; ``teacher.unfreeze()`` trains it again. The student
    is the given object, which knows nothing of the teacher.

    Args:
        teacher: A trained model.
        student: The model that is trained, with the same inputs and outputs; it is
            ready for use by itself at any time. If it is compiled, so is the distiller,
            alike; else ``compile`` the distiller, and the student is compiled alike.
            Then the optimizer's state goes with the student, from ``fit`` to ``fit``.
        distillation_losses: One of :mod:`exburn.distillation`, or a list of them.
        distillation_loss_weights: A weight for each; 1 by default.
        student_loss_weight: w, from 0 to 1.
        name: Name of the model.
        **kwargs: As of ``Model``.

    Raises:
        ArgumentError: Something is no model or no such loss, a weight is out of range,
            or a layer that a loss compares is not there.
        NotBuiltError: The teacher has no weights yet.
        ShapeError: Inputs or outputs of the models differ in shape or dtype.

    Example:
        >>> import numpy as np
        >>> from exburn import Input, Sequential
        >>> from exburn.distillation import LogitsDistillation
        >>> from exburn.layers import Dense
        >>> teacher = Sequential([Input((4,)), Dense(16, "relu"), Dense(3)])
        >>> student = Sequential([Input((4,)), Dense(3)])
        >>> model = Distiller(teacher, student, LogitsDistillation(temperature=2.0))
        >>> model.compile("adam", loss="cross_entropy")
        >>> history = model.fit(np.ones((8, 4)), np.zeros(8, int), verbose=0)
        >>> sorted(history.history)
        ['distillation_loss', 'loss', 'student_loss', 'total_loss']

    Source: ``keras.distillation.Distiller``; Hinton et al., *Distilling the Knowledge
    in a Neural Network*, 2015.
    """

    def __init__(
        self,
        teacher: Model,
        student: Model,
        distillation_losses: Any,
        distillation_loss_weights: Sequence[float] | None = None,
        student_loss_weight: float = 0.5,
        name: str | None = "distiller",
        **kwargs: Unpack[ContainerOptions],
    ):
        super().__init__(name=name, **kwargs)
        _require_models(teacher, student)
        self.student_loss_weight = check_number(
            "Distiller", "student_loss_weight", student_loss_weight, 0, 1
        )
        single = not isinstance(distillation_losses, list | tuple)
        losses = [distillation_losses] if single else list(distillation_losses)
        weights = [1.0] * len(losses)
        if distillation_loss_weights is not None and not single:
            weights = list(distillation_loss_weights)
        if len(weights) != len(losses):
            raise ArgumentError(
                "Distiller",
                f"{len(losses)} losses need as many weights, received {len(weights)}",
            )
        for loss in losses:
            if not isinstance(loss, DistillationLoss):
                raise ArgumentError(
                    "Distiller",
                    f"a loss must be a DistillationLoss, received {loss!r}",
                    hint="SoftTargets(), LogitsDistillation() or FeatureDistillation("
                    "…), of exburn.distillation.",
                )
        self._losses = Static((tuple(losses), tuple(weights)))
        self._losses_for_models = Static(tuple(losses))
        self._trains_alike = Static(False)
        self.teacher, self.student = teacher, student
        self.projections: list[Any] = []
        teacher.trainable = False
        self.student_loss_tracker = Mean(name="student_loss")
        self.distillation_loss_tracker = Mean(name="distillation_loss")
        self.total_loss_tracker = Mean(name="total_loss")
        if _waits(teacher):
            return
        call = _trace_call(teacher)
        if not student.built:
            infer(student, *call)
            materialize(student)
        self._validate()
        infer(self, *call)
        materialize(self)
        if student.loss is not None:
            compile_like(self, student, {})
            self._trains_alike = Static(True)

    def build(self, input_shape: Any = None) -> None:
        """Builds both models where they are not, and what makes features alike."""
        if not self.teacher.built or not self.student.built:
            for model in (self.teacher, self.student):
                model.build(input_shape)
            self._validate()
        projections = (
            loss.make_projection(self.teacher, self.student)
            for loss in self.distillation_losses
        )
        self.projections = [layer or Identity() for layer in projections]

    def _validate(self) -> None:
        """Refuses models that cannot be compared."""
        _check_graphs(self.teacher, self.student)
        for loss in self.distillation_losses:
            loss.validate_model_compatibility(self.teacher, self.student)
            if loss.teacher_layer_name is None and loss.student_layer_name is None:
                _compare_outputs(self.teacher, self.student)

    @property
    def named_like(self) -> Model:
        """The model whose names inputs and outputs have: the student."""
        return self.student

    @property
    def distillation_losses(self) -> list[DistillationLoss]:
        """The losses between teacher and student."""
        return list(self._losses.value[0])

    @property
    def distillation_loss_weights(self) -> list[float]:
        """Their weights."""
        return list(self._losses.value[1])

    def compile(self, optimizer="adam", loss=None, metrics=None, **kwargs):
        """Sets how the student trains; the arguments are those of ``Model.compile``.

        Raises:
            ArgumentError: There is no loss, or the models put out what a loss of
                distillation cannot compare.
        """
        if loss is None:
            raise ArgumentError(
                "Distiller.compile",
                "the student needs a loss of its own",
                hint='compile("adam", loss="cross_entropy").',
            )
        super().compile(optimizer, loss=loss, metrics=metrics, **kwargs)
        models = self.teacher, self.student
        self._losses_for_models = Static(
            tuple(one.for_models(*models, loss) for one in self.distillation_losses)
        )
        self._trains_alike = Static(not self.student.compiled)
        if not self.student.compiled:
            compile_like(self.student, self, {})

    @_like_fit
    def fit(self, *args: Any, **kwargs: Any) -> Any:
        alike = self._trains_alike.value
        if alike and self._is_behind():
            hand_over(self.student, self)
        history = super().fit(*args, **kwargs)
        if alike:
            hand_over(self, self.student)
        return history

    def _is_behind(self) -> bool:
        """Tells whether the student, trained alone since, has all that is trained."""
        mine, its = (int(m.optimizer.iterations) for m in (self, self.student))
        projected = any(layer.trainable_weights for layer in self.projections)
        return mine != its and (mine == 0 or not projected)

    def call(self, inputs, training=None, **kwargs):
        with _capturing(self, "student"):
            return self.student(inputs, training=training, **kwargs)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training: bool = True
    ):
        """The weighted sum of the student's loss and those of distillation."""
        if forward_context.current() is None:  # called by hand
            if not self.built:
                self(x)
            ctx = forward_context.Context(training=training)
            ctx.paths, ctx.root = module_paths(self), self
            with forward_context.forward(ctx):
                return self.compute_loss(x, y, y_pred, sample_weight, training)
        if y_pred is None:
            y_pred = self(x, training=training)
        own: Any = 0.0
        if self.student_loss_weight > 0 and y is not None:
            own = super().compute_loss(x, y, y_pred, sample_weight, training)
        apart: Any = 0.0
        if self.student_loss_weight < 1:
            apart = self._distance(x, y_pred, training)
        share = self.student_loss_weight
        total = share * own + (1 - share) * apart
        self.student_loss_tracker.update_state(own)
        self.distillation_loss_tracker.update_state(apart)
        self.total_loss_tracker.update_state(total)
        return total

    def _distance(self, x: Any, y_pred: Any, training: bool) -> Any:
        """The weighted sum of the losses of distillation."""
        taught, teacher_features = self._observe("teacher", x, training=False)
        _, features = self._observe("student", x, training=training)
        total: Any = 0.0
        losses, weights = self._losses_for_models.value, self.distillation_loss_weights
        for loss, weight, project in zip(
            losses, weights, self.projections, strict=True
        ):
            teacher, student = self._outputs_to_compare(
                loss, teacher_features, features, taught, y_pred
            )
            student = project(student)
            loss.validate_outputs(teacher, student)
            value = loss.compute_loss(teacher, student)
            if getattr(value, "shape", ()):
                raise ShapeError(
                    type(loss).__name__,
                    "compute_loss must return one number, received shape "
                    f"{tuple(value.shape)}",
                    hint="Return its mean.",
                )
            total = total + weight * value
        return total

    def _outputs_to_compare(
        self, loss: Any, theirs: dict, mine: dict, taught: Any, y_pred: Any
    ) -> tuple[Any, Any]:
        """The teacher's and the student's outputs that a loss compares."""
        outputs_of = []
        for name, features, outputs in (
            (loss.teacher_layer_name, theirs, taught),
            (loss.student_layer_name, mine, y_pred),
        ):
            if name is not None and name not in features:
                raise ArgumentError(
                    "Distiller",
                    f"the layer {name!r} must be called in the open, not inside a loop",
                    hint="Compare the layer around it, for example the RNN of a cell.",
                )
            outputs_of.append(outputs if name is None else features[name])
        return outputs_of[0], outputs_of[1]

    def _observe(self, which: str, x: Any, training: bool) -> tuple[Any, dict]:
        """Outputs of a model, and those of its layers that losses compare, by name.

        The student has run already in the pass that its outputs come from.
        """
        ctx = forward_context.current()
        assert ctx is not None
        if which == "student":
            outputs = self._captured_outputs(which, ctx)
            if outputs or not self._compared_paths(which):
                return None, outputs
        with _capturing(self, which):
            outputs = getattr(self, which)(x, training=training)
        return outputs, self._captured_outputs(which, ctx)

    def _compared_paths(self, which: str) -> dict[str, str]:
        """Paths in this model of the layers of one of both that losses compare."""
        paths: dict[str, str] = {}
        for loss in self.distillation_losses:
            if name := getattr(loss, f"{which}_layer_name"):
                paths[name] = f"{which}/{path_of_layer(getattr(self, which), name)}"
        return paths

    def _captured_outputs(
        self, which: str, ctx: forward_context.Context
    ) -> dict[str, Any]:
        """The outputs that the pass has captured, of each layer's first call."""
        outputs: dict[str, list] = {}
        for one in ctx.interceptors:
            if isinstance(one, Capture):
                outputs = {p: v for p, v in one.outputs.items() if v} | outputs
        names = self._compared_paths(which)
        return {name: outputs[p][0] for name, p in names.items() if p in outputs}

    def get_config(self) -> dict[str, Any]:
        losses = [registry.serialize(loss) for loss in self.distillation_losses]
        return {
            "teacher": registry.serialize(self.teacher),
            "student": registry.serialize(self.student),
            "distillation_losses": losses,
            "distillation_loss_weights": self.distillation_loss_weights,
            "student_loss_weight": self.student_loss_weight,
            "name": self.name,
            "trainable": self.trainable,
        }


class _capturing:
    """Within the block, the pass keeps outputs of layers that the losses compare."""

    def __init__(self, model: Distiller, which: str):
        self.paths = model._compared_paths(which).values()

    def __enter__(self) -> None:
        ctx = forward_context.current()
        if ctx is not None and self.paths:
            ctx.interceptors += (Capture(self.paths),)

    def __exit__(self, *_: object) -> None:
        """Leaves the outputs in the pass, for the loss."""


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


def _trace_call(teacher: Model) -> Any:
    """How the teacher is called, and the specs that it is called on."""
    traced = teacher._meta.value.traced
    if traced is None or not teacher.built:
        raise NotBuiltError(
            "Distiller",
            f"the teacher {teacher.name!r} has not been called yet",
            hint="Train it, or load it; or call it once on data.",
        )
    return traced


def _compare_outputs(teacher: Model, student: Model) -> None:
    shapes = [_output_shapes(model) for model in (teacher, student)]
    if shapes[0] != shapes[1]:
        raise ShapeError(
            "Distiller",
            "teacher and student must have outputs of one shape",
            {"teacher": shapes[0], "student": shapes[1]},
            hint="Give the student a last layer as wide as the teacher's.",
        )


def _output_shapes(model: Model) -> Any:
    """Shapes of what a model puts out, batch axis aside, in its structure."""
    inspected = inspect_call(model)
    assert inspected is not None
    specs = inspected[1][""]
    return jax.tree.map(lambda spec: public_shape(spec.shape)[1:], specs)


def _check_graphs(teacher: Any, student: Any) -> None:
    """Refuses functional models whose inputs or outputs differ."""
    if teacher.graph is None or student.graph is None:
        return
    for what in ("inputs", "outputs"):
        mine, theirs = getattr(teacher, what), getattr(student, what)
        if len(mine) != len(theirs):
            raise ShapeError(
                "Distiller",
                f"teacher and student must have as many {what} each",
                {"teacher": len(mine), "student": len(theirs)},
            )
        for one, other in zip(mine, theirs, strict=True):
            sizes = zip(one.shape, other.shape, strict=False)
            fits = one.ndim == other.ndim and all(
                a is None or b is None or a == b for a, b in sizes
            )
            if not fits or one.dtype != other.dtype:
                raise ShapeError(
                    "Distiller",
                    f"teacher and student must have {what} of one shape and dtype",
                    {"teacher": one, "student": other},
                )
