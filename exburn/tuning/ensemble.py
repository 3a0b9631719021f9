"""Several trained models as one, which also says how far its members disagree."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core import registry
from exburn.core.checks import check_choice
from exburn.core.methods import overridable
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError, NotBuiltError, ShapeError
from exburn.errors.boundary import guard_methods
from exburn.layers import Input
from exburn.losses.catalogue import as_loss
from exburn.models import Model
from exburn.models.output_kinds import OutputKind, output_kinds
from exburn.module.building import inspect_call
from exburn.module.layer import Layer
from exburn.module.layer_options import ContainerOptions
from exburn.module.variable import OwnState, Static
from exburn.tuning.calibration import Calibration, calibration

__all__ = ["Ensemble", "Uncertainty"]

KINDS = ("probabilities", "softmax", "sigmoid", "values")


@guard_methods
@dataclasses.dataclass(frozen=True)
class Uncertainty:
    """What the members of an ensemble say together, and how far they disagree.

    Attributes:
        mean: [rows, …] The mean of the members' outputs, as ``predict`` returns it.
        variance: [rows, …] Their variance, each member weighing the same.
        disagreement: [rows] The share of members whose class is another than the
            ensemble's; ``None`` where outputs are no probabilities.
        entropy: [rows] The entropy of the mean, in nats: all uncertainty.
        information: [rows] The mutual information of the class and the member: the
            part of the entropy that is there because members disagree.

    Example:
        >>> said = Uncertainty(mean=np.array([[0.5, 0.5]]), variance=np.zeros((1, 2)))
        >>> said.mean.tolist(), said.entropy
        ([[0.5, 0.5]], None)
    """

    mean: np.ndarray
    variance: np.ndarray
    disagreement: np.ndarray | None = None
    entropy: np.ndarray | None = None
    information: np.ndarray | None = None


@register_builtin
class Ensemble(Model):
    """A model whose outputs are the mean of its members' outputs.

    Classifiers' probabilities are averaged: ``p = 1/m Σ softmax(zᵢ)`` where members put
    out logits. It is a model like any other: it can be saved as one file, served,
    exported, quantized and trained on. The members are copies of those given.

    Args:
        members: Built models with the same inputs and outputs.
        outputs: What members put out: ``"probabilities"``; logits of a ``"softmax"`` or
            a ``"sigmoid"``; ``"values"``, which are averaged as they are; a list of
            these for several outputs. ``"auto"``: what their softmax, or their loss,
            says.
        name: Name of the model.
        **kwargs: As of ``Model``.

    Raises:
        ArgumentError: There are no members, or something is no model.
        NotBuiltError: A member has no weights yet.
        ShapeError: Members differ in the shapes of their inputs or outputs.

    Example:
        >>> from exburn import Input, Sequential
        >>> from exburn.layers import Dense
        >>> members = [Sequential([Input((4,)), Dense(3)]) for _ in range(3)]
        >>> ensemble = Ensemble(members, outputs="softmax")
        >>> x = np.ones((2, 4), "float32")
        >>> ensemble.predict(x, verbose=0).sum(-1).round(4).tolist()
        [1.0, 1.0]
        >>> ensemble.uncertainty(x).variance.shape
        (2, 3)

    Source: Lakshminarayanan et al., *Simple and Scalable Predictive Uncertainty
    Estimation using Deep Ensembles*, 2017.
    """

    def __init__(
        self,
        members: Sequence[Model],
        outputs: str | Sequence[str] = "auto",
        name: str | None = "ensemble",
        **kwargs: Unpack[ContainerOptions],
    ):
        _check_members(members)
        if outputs == "auto":
            member_kinds = output_kinds(members[0], op="Ensemble")
            kinds = tuple(_kind_of_member(kind) for kind in member_kinds)
        else:
            names = [outputs] if isinstance(outputs, str) else list(outputs)
            kinds = tuple(check_choice("Ensemble", "outputs", k, KINDS) for k in names)
        copies = [member.clone() for member in members]
        for number, member in enumerate(copies):
            member.name = f"member_{number}"
        inputs = _input_symbols(members[0])
        each = [member(inputs) for member in copies]
        super().__init__(inputs, _averages(each, kinds), name=name, **kwargs)
        self._kinds = Static(kinds)
        self._together = OwnState([])  # the model of all outputs, once it is asked for
        compile_as_member(self, members[0])

    @property
    def members(self) -> list[Model]:
        """The members."""
        names = [layer for layer in self.layers if isinstance(layer, Model)]
        return sorted(names, key=lambda member: int(member.name.rpartition("_")[2]))

    @property
    def kinds(self) -> tuple[str, ...]:
        """What members put out, for each output."""
        return self._kinds.value

    def predict_members(self, x: Any, batch_size: int | None = None) -> Any:
        """What each member predicts.

        Args:
            x: What ``predict`` takes.
            batch_size: As of ``predict``.

        Returns:
            [rows, members, …] probabilities or values, in the structure of the outputs.
        """
        if not self._together.value:
            each = [member(self.input) for member in self.members]
            outputs = _averages(each, self.kinds, stacked=True)
            self._together.value.append(Model(self.input, outputs))
        return self._together.value[0].predict(x, batch_size=batch_size, verbose=0)

    def uncertainty(
        self,
        x: Any = None,
        y: Any = None,
        *,
        method: str | None = None,
        batch_size: int | None = None,
        **options: Any,
    ) -> Any:
        """The mean of the members, their variance, and how far they disagree.

        Args:
            x: What ``predict`` takes.
            y: Targets, for a method.
            method: A method of ``Model.uncertainty``, which then is what is called.
            batch_size: As of ``predict``.
            **options: Of the method.

        Returns:
            An :class:`Uncertainty`, in the structure of the outputs.
        """
        if method is not None:
            if batch_size is not None:
                options["batch_size"] = batch_size
            return super().uncertainty(x, y, method=method, **options)
        if y is not None or options:
            name = "y" if y is not None else next(iter(options))
            raise ArgumentError(
                "Ensemble.uncertainty",
                f"{name} is for a method",
                hint='ensemble.uncertainty(x, y, method="conformal")',
            )
        each = self.predict_members(x, batch_size)
        leaves, tree = jax.tree.flatten(each)
        parts = [_uncertainty(o, k) for o, k in zip(leaves, self.kinds, strict=True)]
        return jax.tree.unflatten(tree, parts)

    def calibration(
        self, x: Any, y: Any, bins: int = 15, batch_size: int | None = None
    ) -> Calibration:
        """How far the ensemble's probabilities can be believed.

        Args:
            x: What ``predict`` takes.
            y: Labels, or one-hot targets.
            bins: How many bins of confidence.
            batch_size: As of ``predict``.

        Raises:
            ArgumentError: The ensemble has several outputs, or no probabilities.
        """
        if len(self.kinds) != 1 or self.kinds[0] == "values":
            reason = "calibration is of one output of probabilities"
            raise ArgumentError("Ensemble.calibration", reason, {"outputs": self.kinds})
        p = self.predict(x, batch_size=batch_size, verbose=0)
        return calibration(y, p, bins)

    def get_config(self) -> dict[str, Any]:
        return {
            "members": [registry.serialize(member) for member in self.members],
            "outputs": list(self.kinds),
            "name": self.name,
            "trainable": self.trainable,
        }

    @classmethod
    @overridable
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        with registry.custom_objects(custom_objects):
            members = [registry.deserialize(member) for member in config["members"]]
        arguments: dict[str, Any] = {**config, "members": members}
        return cls(**arguments)


@register_builtin
class EnsembleMean(Layer):
    """The mean of what members put out, or all of it.

    Args:
        kind: What they put out: see :class:`Ensemble`.
        stacked: Whether the outputs are stacked instead of averaged.

    Shape:
        a list of [batch, …] → [batch, …], or [batch, members, …]

    Example:
        >>> EnsembleMean("sigmoid")([np.zeros((1, 1)), np.zeros((1, 1))]).tolist()
        [[0.5]]
    """

    def __init__(self, kind: str, stacked: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        self.kind, self.stacked = kind, stacked

    def call(self, outputs):
        each = jnp.stack([_as_averaged(output, self.kind) for output in outputs], 1)
        return each if self.stacked else jnp.mean(each, 1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "kind": self.kind, "stacked": self.stacked}


def _averages(each: list[Any], kinds: tuple[str, ...], stacked: bool = False) -> Any:
    """Symbols of the means of members' outputs, or of all of them, stacked."""
    leaves = [jax.tree.leaves(outputs) for outputs in each]
    if len(kinds) != len(leaves[0]):
        reason = f"members have {len(leaves[0])} outputs, {len(kinds)} are described"
        raise ArgumentError("Ensemble", reason)
    means = [
        EnsembleMean(kind, stacked)(list(of_one))
        for kind, of_one in zip(kinds, zip(*leaves, strict=True), strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(each[0]), means)


def _input_symbols(member: Model) -> Any:
    """New symbols in the structure of a member's inputs, by the same names."""
    if member.graph is not None or member._meta.value.calls:
        inputs = member.input
        return jax.tree.map(
            lambda s: Input(s.shape[1:], dtype=s.dtype, name=s.name), inputs
        )
    args, kwargs = _called_with(member)
    if len(args) != 1 or kwargs:
        raise ArgumentError(
            "Ensemble",
            f"{member.name!r} takes more than its inputs: call it on symbols first",
            hint="member(exburn.Input(shape)).",
        )
    return jax.tree.map(lambda s: Input(s.shape[1:], dtype=s.dtype), args[0])


def _called_with(member: Model) -> Any:
    """Arguments that a member was called with, as specs."""
    traced = member._meta.value.traced
    if traced is None:
        raise NotBuiltError(
            "Ensemble",
            f"{member.name!r} has not been called yet, so that its inputs are unknown",
            hint="Call it once, on data or on exburn.Input(shape).",
        )
    rebuild, specs = traced
    return rebuild(specs)


def _kind_of_member(kind: OutputKind) -> str:
    plain = kind.logits or kind.family == "values"
    return kind.family if plain else "probabilities"


def _as_averaged(output: Any, kind: str) -> Any:
    """What of a member's output is averaged: probabilities in float32 at least."""
    if kind == "values":
        return output
    output = output.astype(jnp.promote_types(output.dtype, jnp.float32))
    if kind == "softmax":
        return jax.nn.softmax(output)
    return jax.nn.sigmoid(output) if kind == "sigmoid" else output


def _uncertainty(outputs: Any, kind: str) -> Uncertainty:
    each = np.asarray(outputs, np.float64)  # [rows, members, …]
    mean, variance = each.mean(1), each.var(1)  # [rows, …]
    if kind == "values":
        return Uncertainty(mean, variance)
    if not (each.ndim > 2 and np.allclose(each.sum(-1), 1, atol=1e-3)):
        # Each output is the probability of a class against the rest.
        each = np.stack([1 - each, each], -1)  # [rows, members, …, 2]
    p = each.mean(1)  # [rows, …, classes]
    total, own = _entropy(p), _entropy(each).mean(1)  # [rows, …]
    others = (each.argmax(-1) != p.argmax(-1)[:, None]).mean(1)  # [rows, …]
    # Of outputs with a time axis, or of several labels, the mean over these.
    spare = tuple(range(1, total.ndim))
    each_row = (values.mean(spare) for values in (others, total, total - own))
    return Uncertainty(mean, variance, *each_row)


def _entropy(p: np.ndarray) -> np.ndarray:
    """In nats, over the last axis."""
    return -np.sum(p * np.log(np.maximum(p, 1e-300)), -1)


def compile_as_member(ensemble: Model, member: Model) -> None:
    """Compiles with what a member was compiled with, for probabilities.

    Losses and metrics that took logits take probabilities. A member that is not
    compiled, or whose loss no file could name, leaves the ensemble uncompiled.
    """
    try:
        config = member.get_compile_config()
    except ArgumentError:
        return
    if config is None:
        return
    config["loss"] = _describe_loss(config["loss"])
    for name in ("loss", "metrics", "weighted_metrics"):
        config[name] = _of_probabilities(config[name])
    ensemble.compile_from_config(config)


def _describe_loss(loss: Any) -> Any:
    """The configurations of losses, those that are given by name, too."""
    if isinstance(loss, str):
        return registry.serialize(as_loss(loss))
    if isinstance(loss, list | tuple):
        return [_describe_loss(item) for item in loss]
    if isinstance(loss, Mapping) and "class_name" not in loss:  # by output
        return {key: _describe_loss(value) for key, value in loss.items()}
    return loss


def _of_probabilities(config: Any) -> Any:
    """What losses or metrics of these configurations are for probabilities."""
    if isinstance(config, list | tuple):
        return [_of_probabilities(item) for item in config]
    if not isinstance(config, Mapping):
        return config
    changed = {key: _of_probabilities(value) for key, value in config.items()}
    return changed | ({"from_logits": False} if "from_logits" in changed else {})


def _check_members(members: Any) -> None:
    if not isinstance(members, Sequence) or isinstance(members, str) or not members:
        reason = f"members must be a list of models, received {members!r}"
        raise ArgumentError("Ensemble", reason)
    for member in members:
        if not isinstance(member, Model):
            reason = f"a member must be a model, received {type(member).__name__}"
            raise ArgumentError("Ensemble", reason)
        if not member.built:
            raise NotBuiltError(
                "Ensemble", f"{member.name!r} has no weights yet", hint="Call it once."
            )
    forms = [_form(member) for member in members]
    for member, form in zip(members, forms, strict=True):
        if form != forms[0]:
            raise ShapeError(
                "Ensemble",
                "members must have inputs and outputs of the same shapes",
                {members[0].name: forms[0], member.name: form},
            )


def _form(member: Model) -> Any:
    traced = inspect_call(member)
    if traced is None:
        return None
    inputs = [(spec.shape, str(spec.dtype)) for spec in member._meta.value.traced[1]]
    return str(inputs), str([spec.shape for spec in traced[0].out_avals])
