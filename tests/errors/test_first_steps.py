"""What one gets wrong in a first program: the hint says what mends it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.errors.bench import LABELS, Cases, X

import exburn
from exburn import callbacks, layers
from exburn.callbacks import EarlyStopping
from exburn.errors import (
    ArgumentError,
    CallbackError,
    DataError,
    DTypeError,
    ShapeError,
    TargetError,
    UnknownNameError,
)

bad = Cases()


def compiled(*stack, loss="cross_entropy", metrics=None):
    model = exburn.Sequential([exburn.Input((8,)), *stack])
    model.compile("adam", loss, metrics=metrics, seed=0)
    return model


def without_flatten():
    return compiled(layers.Reshape((2, 2, 2)), layers.Conv2D(4, 1), layers.Dense(3))


def regressor_without_flatten():
    return compiled(layers.Reshape((2, 4)), layers.Dense(1), loss="mse")


def of_metric(name):
    return lambda: compiled(layers.Dense(3), metrics=[name])


def two_outputs():
    x = exburn.Input((8,))
    kind, size = layers.Dense(3, name="kind")(x), layers.Dense(1, name="size")(x)
    model = exburn.Model(x, {"kind": kind, "size": size})
    losses = {"kind": "cross_entropy", "size": "mse"}
    model.compile("adam", losses, metrics={"kind": ["mae"], "size": ["mae"]}, seed=0)
    return model


# ---------------------------------------------------------------------- shapes
@bad(ShapeError, "class label", "put a Flatten", make=without_flatten)
def labels_of_images_that_were_not_flattened(b):
    b.model.fit(b.x, b.y)


@bad(ShapeError, "float32[12, 2, 2, 3]", "put a Flatten", make=without_flatten)
def one_hot_targets_of_images_that_were_not_flattened(b):
    b.model.fit(b.x, np.eye(3)[b.y])


@bad(ShapeError, "put a Flatten", make=regressor_without_flatten)
def numbers_of_sequences_that_were_not_flattened(b):
    b.model.fit(b.x, b.y.astype(float))


@bad(ShapeError, "5 classes, the predictions 3", "a unit for each class")
def one_hot_targets_of_more_classes(b):
    b.model.fit(b.x, np.eye(5)[b.y])


@bad(ShapeError, "must have the shape (8,)", "has (2, 4): x.reshape(len(x), -1)")
def images_for_a_model_of_vectors(b):
    b.model.fit(b.x.reshape(12, 2, 4), b.y)


@bad(ShapeError, "must have the shape (8,)", "is one number")
def x_and_y_exchanged(b):
    b.model.fit(b.y, b.x)


@bad(ShapeError, "pass one row as x[None]")
def one_row_alone(b):
    b.model.predict(b.x[0])


@bad(ShapeError, "rank 3", "return_sequences=True")
def recurrent_layers_on_top_of_each_other(b):
    exburn.Sequential([exburn.Input((5, 8)), layers.LSTM(4), layers.LSTM(4)])


@bad(ShapeError, "rank 3", "(None, 5, 1, 3)", "Leave an axis out")
def a_recurrent_layer_on_an_axis_too_many(b):
    ids = exburn.Input((5, 1))
    exburn.Sequential([ids, layers.Embedding(10, 3), layers.LSTM(4)])


# ---------------------------------------------------------------------- data
@bad(DTypeError, "not str", "Read the file first")
def the_name_of_a_file_as_data(b):
    b.model.fit("data.csv", b.y)


@bad(DTypeError, "not function", "Call it: batches()")
def a_generator_function_as_data(b):
    def batches():
        yield b.x, b.y

    b.model.fit(batches)


@bad(ArgumentError, "received 'balanced'", "dict(enumerate(weights))")
def class_weights_by_name(b):
    b.model.fit(b.x, b.y, class_weight="balanced")


# ---------------------------------------------------------------------- callbacks
NO_NUMBERS = [
    (callbacks.EarlyStopping, {"patience": "3"}),
    (callbacks.EarlyStopping, {"patience": -1}),
    (callbacks.EarlyStopping, {"min_delta": "a"}),
    (callbacks.EarlyStopping, {"baseline": "x"}),
    (callbacks.EarlyStopping, {"start_from_epoch": "1"}),
    (callbacks.EarlyStopping, {"monitor": ["loss"]}),
    (callbacks.ReduceLROnPlateau, {"factor": "a"}),
    (callbacks.ReduceLROnPlateau, {"patience": "3"}),
    (callbacks.ReduceLROnPlateau, {"cooldown": -1}),
    (callbacks.ReduceLROnPlateau, {"min_lr": "0"}),
    (callbacks.WarmUp, {"epochs": "2"}),
    (callbacks.ModelCheckpoint, {"filepath": 3}),
    (callbacks.ModelCheckpoint, {"filepath": "a/", "initial_value_threshold": "x"}),
    (callbacks.CSVLogger, {"filename": ""}),
    (callbacks.BackupAndRestore, {"backup_dir": 3}),
]


@pytest.mark.parametrize(("callback", "options"), NO_NUMBERS)
def test_arguments_of_callbacks_are_checked_when_they_are_given(callback, options):
    with pytest.raises(CallbackError) as caught:
        callback(**options)
    assert "must be" in str(caught.value) or "positive number" in str(caught.value)


# ---------------------------------------------------------------------- metrics
@bad(
    TargetError,
    "look like class labels",
    "Use 'sparse_top_k_categorical_accuracy'",
    make=of_metric("top_k_categorical_accuracy"),
)
def labels_for_a_metric_of_one_hot_targets(b):
    b.model.fit(b.x, b.y)


@bad(
    TargetError,
    "look one-hot",
    "Use 'categorical_accuracy'",
    make=of_metric("sparse_categorical_accuracy"),
)
def one_hot_targets_for_a_metric_of_labels(b):
    b.model.fit(b.x, np.eye(3)[b.y])


@bad(ShapeError, "the metric 'accuracy'", "in metric 'mae'", make=of_metric("mae"))
def labels_for_a_metric_of_numbers(b):
    b.model.fit(b.x, b.y)


@bad(ShapeError, "in metric 'f1_score'", make=of_metric("f1_score"))
def labels_for_a_metric_with_a_state_of_classes(b):
    b.model.fit(b.x, b.y)


@bad(UnknownNameError, "'F1'", "'f1_score'")
def the_beginning_of_a_metric_s_name(b):
    b.model.compile("adam", "mse", metrics=["F1"])


@bad(CallbackError, "'val_acc'", "validation_split", "compile(metrics=…)")
def a_monitor_that_nothing_logs(b):
    EarlyStopping("val_acc").get_monitor_value({"loss": 1.0})


# ---------------------------------------------------------------------- validation
@bad(DataError, "y has 0 arrays", "validation_data=(x, y)")
def validation_data_that_are_x_alone(b):
    b.model.fit(b.x, b.y, validation_data=b.x)


def test_capitals_do_not_double_the_names_that_are_meant():
    with pytest.raises(UnknownNameError) as caught:
        exburn.metrics.get("acuracy")
    hint = str(caught.value.hint)
    assert hint.startswith("Did you mean 'accuracy'") and "'Accuracy'" not in hint


def test_errors_of_several_outputs_say_which():
    model = two_outputs()
    with pytest.raises(ShapeError) as caught:
        model.fit(X, {"kind": LABELS, "size": LABELS})
    assert caught.value.places == ["in metric 'mae' of the output 'kind'"]
    model.compile("adam", {"kind": "mse", "size": "mse"})
    with pytest.raises(ShapeError) as caught:
        model.fit(X, {"kind": LABELS, "size": LABELS})
    assert "of the output 'kind'" in caught.value.places[0]


class Own(exburn.Model):
    """A model whose call is written by hand."""

    def __init__(self, change):
        super().__init__()
        self.change, self.last = change, layers.Dense(3)

    def call(self, x):
        return self.change(self.last(x))


def test_a_call_without_return_is_told():
    model = Own(lambda x: None)
    model.compile("adam", "cross_entropy", seed=0)
    with pytest.raises(DataError, match="returned nothing"):
        model.fit(X, LABELS)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: np.asarray(x) * 2, "Use exburn.ops or jax.numpy."),
        (lambda x: x if jnp.sum(x) > 0 else -x, "ops.where, ops.cond"),
        (lambda x: x * float(x[0, 0]), "ops.where, ops.cond"),
    ],
)
def test_values_that_a_traced_call_does_not_have(change, said):
    model = Own(change)
    model.compile("adam", "cross_entropy", seed=0)
    with pytest.raises(jax.errors.JAXTypeError) as caught:
        model.fit(X, LABELS)
    assert said in str(caught.value).splitlines()[-1]
