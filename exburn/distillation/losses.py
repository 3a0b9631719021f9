"""How far a student's outputs, or features, are from the teacher's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn import tree
from exburn.core import registry
from exburn.core.checks import check_flag
from exburn.core.registry import Configured, register_builtin
from exburn.core.symbolic_shapes import public_shape
from exburn.errors import ArgumentError, DataError, ExBurnError, ShapeError
from exburn.layers import Dense, Layer
from exburn.losses import CategoricalCrossentropy, KLDivergence, Loss
from exburn.losses.catalogue import as_loss
from exburn.models.hooks import path_of_layer
from exburn.module.building import inspect_call


class DistillationLoss(Configured):
    """Base of what a :class:`Distiller` minimizes beside the student's own loss.

    Subclass it and write ``compute_loss``, which returns a scalar.

    Example:
        >>> class Largest(DistillationLoss):
        ...     def compute_loss(self, teacher_outputs, student_outputs, **kwargs):
        ...         return abs(teacher_outputs - student_outputs).max()
        >>> float(Largest().compute_loss(jnp.array([1.0, 2.0]), jnp.array([1.0, 5.0])))
        3.0

    Source: ``keras.distillation.DistillationLoss``.
    """

    #: Names of the layers whose outputs are compared; the models' if None.
    teacher_layer_name: str | None = None
    student_layer_name: str | None = None

    def compute_loss(
        self, teacher_outputs: Any, student_outputs: Any, **kwargs: Any
    ) -> Any:
        """The loss, a scalar, of outputs in their structures."""
        raise ArgumentError(
            type(self).__name__,
            "a loss of distillation needs a method compute_loss",
            hint="Write def compute_loss(self, teacher_outputs, student_outputs, "
            "**kwargs): … in the class.",
        )

    def validate_outputs(self, teacher_outputs: Any, student_outputs: Any) -> None:
        """Compares the structures of outputs.

        Raises:
            DataError: They differ.
        """
        try:
            tree.assert_same_structure(teacher_outputs, student_outputs)
        except ExBurnError as error:
            raise DataError(
                type(self).__name__,
                "teacher and student must put out the same structure",
                {"cause": str(error).partition("\n")[2]},
            ) from error

    def validate_model_compatibility(self, teacher: Any, student: Any) -> None:
        """Checks whether both models have what the loss compares.

        Raises:
            ArgumentError: One has not.
        """

    def for_models(self, teacher: Any, student: Any, loss: Any) -> DistillationLoss:
        """The loss as it compares these two models; by default the loss itself.

        Args:
            teacher, student: Built models.
            loss: What the student is compiled with.

        Raises:
            ArgumentError: The models put out what the loss cannot compare.
        """
        return self

    def make_projection(self, teacher: Any, student: Any) -> Layer | None:
        """A layer that the student's side passes before it is compared, or ``None``.

        It is trained with the student, and is no part of it.

        Args:
            teacher, student: Built models.

        Raises:
            ShapeError: No layer makes one side of the other.
        """
        return None


class _OfLosses(DistillationLoss):
    """A sum of losses, one for each output that is compared."""

    loss: Any

    def _take(self, loss: Any) -> None:
        self.loss = tree.map_structure(
            lambda one: None if one is None else as_loss(one), loss
        )
        if all(one is None for one in tree.flatten(self.loss)):
            raise ArgumentError(
                type(self).__name__, "at least one of the losses must not be None"
            )

    def validate_outputs(self, teacher_outputs: Any, student_outputs: Any) -> None:
        super().validate_outputs(teacher_outputs, student_outputs)
        try:
            tree.assert_same_structure(self.loss, teacher_outputs)
        except ExBurnError as error:
            raise DataError(
                type(self).__name__,
                "there must be a loss, or None, for each output",
                {"cause": str(error).partition("\n")[2]},
            ) from error

    def compute_loss(
        self, teacher_outputs: Any, student_outputs: Any, **kwargs: Any
    ) -> Any:
        def value(loss: Loss | None, teacher: Any, student: Any) -> Any:
            return 0.0 if loss is None else self._compare(loss, teacher, student)

        values = tree.map_structure(value, self.loss, teacher_outputs, student_outputs)
        return sum(tree.flatten(values))

    def _compare(self, loss: Loss, teacher: Any, student: Any) -> Any:
        return jnp.mean(loss(teacher, student))


@register_builtin
class FeatureDistillation(_OfLosses):
    """The distance of the student's features from the teacher's.

    ``loss(teacher's layer, student's layer)``, a mean over the batch.

    Args:
        loss: Loss, name or function; in the structure of the outputs if there are
            several, with ``None`` for one that is not compared.
        teacher_layer_name: The teacher's layer, by its name or path; its outputs if
            None.
        student_layer_name: The same of the student.
        project: Whether a linear layer, trained with the student and kept by the
            ``Distiller``, makes as many features of the student's as the teacher has.
            Where they have as many, they are compared as they are.

    Raises:
        ArgumentError: There is no loss; in a ``Distiller``, no such layer.
        ShapeError: In a ``Distiller``, features to project differ before the last axis.

    Example:
        >>> loss = FeatureDistillation("mse", "hidden", "small")
        >>> float(loss.compute_loss(jnp.ones((2, 3)), jnp.zeros((2, 3))))
        1.0

    Source: ``keras.distillation.FeatureDistillation``; the projection is that of Romero
    et al., *FitNets: Hints for Thin Deep Nets*, 2015.
    """

    def __init__(
        self,
        loss: Any = "mse",
        teacher_layer_name: str | None = None,
        student_layer_name: str | None = None,
        *,
        project: bool = False,
    ):
        self._take(loss)
        self.project = check_flag("FeatureDistillation", "project", project)
        self.teacher_layer_name = teacher_layer_name
        self.student_layer_name = student_layer_name

    def validate_model_compatibility(self, teacher: Any, student: Any) -> None:
        for which, model in (("teacher", teacher), ("student", student)):
            name = getattr(self, f"{which}_layer_name")
            if name is None:
                continue
            try:
                path_of_layer(model, name)
            except ExBurnError as error:
                raise ArgumentError(
                    "FeatureDistillation",
                    f"the {which} has no layer {name!r}",
                    {"cause": str(error).partition("\n")[2]},
                ) from error

    def make_projection(self, teacher: Any, student: Any) -> Layer | None:
        if not self.project:
            return None
        theirs = _feature_shape(teacher, self.teacher_layer_name)
        mine = _feature_shape(student, self.student_layer_name)
        if len(mine) < 2 or mine[1:-1] != theirs[1:-1] or len(mine) != len(theirs):
            raise ShapeError(
                "FeatureDistillation",
                "features must have one shape, up to the last axis",
                {"teacher": theirs, "student": mine},
                hint="Choose layers at the same depth: before the same pooling.",
            )
        if mine[-1] == theirs[-1]:
            return None
        layer = Dense(theirs[-1], use_bias=False)
        layer.build(mine)
        return layer

    def get_config(self) -> dict[str, Any]:
        return {
            "loss": tree.map_structure(registry.serialize, self.loss),
            "teacher_layer_name": self.teacher_layer_name,
            "student_layer_name": self.student_layer_name,
            "project": self.project,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> FeatureDistillation:
        return cls(**{**config, "loss": registry.deserialize(config["loss"])})


@register_builtin
class LogitsDistillation(_OfLosses):
    """The distance of the student's logits from the teacher's, softened.

    With ``z`` the logits and ``T`` the temperature: ``loss(z_teacher / T, z_student /
    T)``. Losses between distributions, which are the divergence of Kullback and
    Leibler and the categorical cross-entropy, compare ``softmax(z / T)`` instead,
    times ``T²``, which keeps the size of the gradient.

    Args:
        temperature: T; the higher, the more the small probabilities count.
        loss: Loss, name or function; in the structure of the outputs if there are
            several, with ``None`` for one that is not compared.

    Raises:
        ArgumentError: The temperature is no positive number, or there is no loss.

    Example:
        >>> loss = LogitsDistillation(temperature=2.0)
        >>> teacher, student = jnp.array([[2.0, 0.0]]), jnp.array([[0.0, 0.0]])
        >>> round(float(loss.compute_loss(teacher, student)), 4)  # 4 KL(p, 1/2)
        0.4438

    Source: ``keras.distillation.LogitsDistillation``; Hinton et al., *Distilling the
    Knowledge in a Neural Network*, 2015.
    """

    def __init__(self, temperature: float = 3.0, loss: Any = "kl_divergence"):
        number = isinstance(temperature, int | float)
        if not number or isinstance(temperature, bool) or not temperature > 0:
            raise ArgumentError(
                "LogitsDistillation",
                f"temperature must be a positive number, received {temperature!r}",
            )
        self.temperature = temperature
        self._take(loss)

    def _compare(self, loss: Loss, teacher: Any, student: Any) -> Any:
        teacher, student = teacher / self.temperature, student / self.temperature
        if not isinstance(loss, KLDivergence | CategoricalCrossentropy):
            return super()._compare(loss, teacher, student)
        teacher = jax.nn.softmax(teacher)
        if not getattr(loss, "from_logits", False):
            student = jax.nn.softmax(student)
        return super()._compare(loss, teacher, student) * self.temperature**2

    def get_config(self) -> dict[str, Any]:
        return {
            "temperature": self.temperature,
            "loss": tree.map_structure(registry.serialize, self.loss),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LogitsDistillation:
        return cls(**{**config, "loss": registry.deserialize(config["loss"])})


def _feature_shape(model: Any, layer: str | None) -> tuple[Any, ...]:
    """The shape of what a layer puts out, or the model; ``None`` for open sizes."""
    inspected = inspect_call(model)
    assert inspected is not None
    spec = inspected[1].get("" if layer is None else path_of_layer(model, layer))
    shape = getattr(spec, "shape", None)
    if shape is None:
        raise ArgumentError(
            "FeatureDistillation",
            f"the layer {layer!r} of {model.name!r} does not put out one array",
            hint="Choose a layer that is called in the open, with one output.",
        )
    return public_shape(shape)
