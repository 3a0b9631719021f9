"""A small training, and what can be changed of it one thing at a time."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

import exburn
from exburn import layers, losses, optimizers, regularizers

RNG = np.random.default_rng(5)
X = RNG.normal(size=(24, 4)).astype(np.float32)
Y = (X.sum(1) > 0).astype(np.float32)


class Scale(layers.Layer):
    """A layer of a user's, with an option that is no argument."""

    def __init__(self, **options):
        super().__init__(**options)
        self.factor = 0.5

    def call(self, x):
        return x * self.factor


class Square(Scale):
    """The same, with another computation."""

    def call(self, x):
        return x * x * self.factor


def penalized(factor: float) -> Callable:
    """A loss of a user's, that closes over a number."""
    return lambda y_true, y_pred: factor * (y_true - y_pred) ** 2


def adam(rate: Any = 0.01, **options: Any) -> Callable:
    return lambda: optimizers.Adam(rate, **options)


@dataclasses.dataclass
class Training:
    """A model, what it is compiled with, and what it is trained on."""

    x: Any = dataclasses.field(default_factory=X.copy)
    y: Any = dataclasses.field(default_factory=Y.copy)
    validation_data: Any = dataclasses.field(
        default_factory=lambda: (X[:8] + 1, 1 - Y[:8])
    )
    sample_weight: Any = None
    class_weight: Any = dataclasses.field(default_factory=lambda: {0: 1.0, 1: 2.0})
    batch_size: int = 6
    shuffle: bool = True
    steps_per_epoch: int | None = None
    activation: Any = "relu"
    units: int = 5
    initializer: str = "glorot_uniform"
    regularizer: Any = None
    constraint: Any = None
    rate: float = 0.2
    trainable: bool = True
    residual: bool = True
    own_class: type = Scale
    factor: float = 0.5
    optimizer: Callable = dataclasses.field(default_factory=adam)
    loss: Any = dataclasses.field(
        default_factory=lambda: losses.BinaryCrossentropy(from_logits=True)
    )
    loss_weights: Any = None
    metrics: tuple = ("mae",)
    clip_norm: float | None = None
    seed: int = 3

    def model(self) -> Any:
        """The model, compiled."""
        scale = self.own_class(name="scale")
        scale.factor = self.factor
        inputs = exburn.Input((4,))
        hidden = layers.Dense(
            self.units,
            self.activation,
            kernel_initializer=self.initializer,
            kernel_regularizer=self.regularizer,
            kernel_constraint=self.constraint,
            trainable=self.trainable,
            name="hidden",
        )(inputs)
        dropped = layers.Dropout(self.rate, name="drop")(hidden)
        if self.residual:
            dropped = layers.Add(name="add")([dropped, hidden])
        outputs = layers.Dense(1, name="out")(scale(dropped))
        model = exburn.Model(inputs, outputs)
        model.compile(
            self.optimizer(),
            self.loss,
            loss_weights=self.loss_weights,
            metrics=[*self.metrics],
            clip_norm=self.clip_norm,
            seed=self.seed,
        )
        return model

    def data(self) -> dict[str, Any]:
        """What ``fit`` and ``sweep`` take of it."""
        names = "x y validation_data sample_weight class_weight batch_size shuffle"
        names += " steps_per_epoch"
        return {name: getattr(self, name) for name in names.split()}


def _in_place(array: str, *place: Any) -> Callable[[Training], None]:
    def change(training: Training) -> None:
        values = getattr(training, array)
        for key in place[:-1]:
            values = values[key]
        values[place[-1]] += 1

    return change


def _to(**values: Any) -> Callable[[Training], None]:
    def change(training: Training) -> None:
        for name, value in values.items():
            setattr(training, name, copy.copy(value))

    return change


def _weigh_rows(training: Training) -> None:
    training.class_weight, training.sample_weight = None, np.ones(len(training.x))


#: What is changed → how, and a part that the error must name.
CHANGES: dict[str, tuple[Callable[[Training], None], str]] = {
    "a number of the data": (_in_place("x", 3, 2), "x: other values"),
    "the number of rows": (_to(x=X[:20], y=Y[:20]), r"x: float32\[24,4\] → .*20"),
    "a target": (_in_place("y", 7), "y: other values"),
    "validation data": (
        _to(validation_data=(X[:8] + 1, Y[:8])),
        r"validation_data\.y",
    ),
    "no validation": (_to(validation_data=None), "validation_data: arrays → None"),
    "weights of classes": (_to(class_weight={0: 1.0, 1: 3.0}), "class_weight"),
    "weights of rows": (_weigh_rows, "sample_weight"),
    "the size of batches": (_to(batch_size=8), "batch_size: 6 → 8"),
    "the order": (_to(shuffle=False), "shuffle: True → False"),
    "steps of an epoch": (_to(steps_per_epoch=2), "steps_per_epoch: None → 2"),
    "an activation": (_to(activation="tanh"), "hidden.activation: relu → tanh"),
    "an own activation": (
        _to(activation=lambda x: 2 * abs(x)),
        "hidden.activation: relu → <lambda>",
    ),
    "units": (_to(units=6), "hidden.units: 5 → 6"),
    "an initializer": (_to(initializer="he_normal"), "hidden.kernel_initializer"),
    "a regularizer": (_to(regularizer="l2"), "hidden.kernel_regularizer: None → L2"),
    "a constraint": (_to(constraint="non_neg"), "hidden.kernel_constraint"),
    "dropout": (_to(rate=0.3), "drop.rate: 0.2 → 0.3"),
    "a frozen layer": (_to(trainable=False), "hidden.trainable: True → False"),
    "how layers connect": (_to(residual=False), "add: Add → None"),
    "an own class": (_to(own_class=Square), "scale: Scale → Square"),
    "an attribute": (_to(factor=0.25), "scale.factor: 0.5 → 0.25"),
    "another optimizer": (
        _to(optimizer=lambda: optimizers.SGD(0.01)),
        "optimizer: Adam → SGD",
    ),
    "an option of the optimizer": (
        _to(optimizer=adam(beta_1=0.8)),
        "optimizer.beta_1: 0.9 → 0.8",
    ),
    "the learning rate": (_to(optimizer=adam(0.02)), "learning_rate: 0.01 → 0.02"),
    "a schedule": (
        _to(optimizer=adam(optimizers.schedules.ExponentialDecay(0.01, 9, 0.9))),
        "learning_rate: 0.01 → ExponentialDecay",
    ),
    "clipping": (_to(clip_norm=0.5), "optimizer.global_clipnorm: None → 0.5"),
    "another loss": (_to(loss="mse"), "loss: BinaryCrossentropy.* → MeanSquaredError"),
    "an option of the loss": (
        _to(loss=losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.1)),
        "loss: ",
    ),
    "an own loss": (_to(loss=penalized(2.0)), "loss: .* → "),
    "weights of losses": (_to(loss_weights=[2.0]), "loss_weights: 1.0 → 2.0"),
    "a metric": (_to(metrics=("mae", "mse")), "metrics.mse: None → "),
    "the seed": (_to(seed=4), "seed: 3 → 4"),
}

#: Pairs of trainings that differ within what has no name of its own.
WITHIN: dict[str, tuple[Callable[[Training], None], Callable, str]] = {
    "a number in an own loss": (
        _to(loss=penalized(2.0)),
        _to(loss=penalized(3.0)),
        "loss: another FunctionLoss",
    ),
    "the code of an activation": (
        _to(activation=lambda x: 2 * x),
        _to(activation=lambda x: 3 * x),
        "hidden.activation: another <lambda>",
    ),
    "a number of a regularizer": (
        _to(regularizer=regularizers.L2(0.1)),
        _to(regularizer=regularizers.L2(0.2)),
        r"kernel_regularizer: L2\(l2: 0.1\) → L2\(l2: 0.2\)",
    ),
}
