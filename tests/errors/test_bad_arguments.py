"""Bad arguments of compile, fit, evaluate and predict, and calls out of order."""

import numpy as np
import pytest
from tests.errors.bench import Case, Cases, check_refused, classifier, pair, untrained

from exburn import optimizers
from exburn.callbacks import Callback, EarlyStopping
from exburn.errors import (
    ArgumentError,
    CallbackError,
    DTypeError,
    NotCompiledError,
    ShapeError,
    UnknownNameError,
)

bad = Cases()


def refused(error, act, *says, make=classifier):
    check_refused(Case(act, error, says, make))


# ---------------------------------------------------------------------- arguments
@pytest.mark.parametrize("value", [0, -1, 2.5, True, "32", np.float32(8)])
@pytest.mark.parametrize("op", ["fit", "evaluate", "predict"])
def test_a_batch_size_must_be_a_whole_number(op, value):
    def act(b):
        args = (b.x,) if op == "predict" else (b.x, b.y)
        getattr(b.model, op)(*args, batch_size=value)

    refused(ArgumentError, act, f"{op}: batch_size", "≥ 1", f"received {value!r}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", -1),
        ("epochs", 1.5),
        ("epochs", True),
        ("epochs", None),
        ("initial_epoch", -1),
        ("steps_per_epoch", 0),
        ("steps_per_epoch", -5),
        ("steps_per_epoch", 2.0),
        ("validation_steps", 0),
        ("validation_batch_size", 0),
        ("validation_freq", 0),
        ("validation_freq", "often"),
        ("validation_freq", [0]),
        ("verbose", 3),
        ("verbose", "loud"),
        ("verbose", None),
        ("shuffle", "rows"),
        ("shuffle", 2),
    ],
)
def test_an_argument_of_fit_must_make_sense(name, value):
    def act(b):
        b.model.fit(b.x, b.y, **{name: value})

    refused(ArgumentError, act, f"fit: {name}", f"{value!r}")


@bad(ArgumentError, "evaluate: steps", "received 0")
def no_steps_of_evaluate(b):
    b.model.evaluate(b.x, b.y, steps=0)


@bad(ArgumentError, "predict: steps", "received 1.5")
def half_steps_of_predict(b):
    b.model.predict(b.x, steps=1.5)


@pytest.mark.parametrize("value", [1.0, -0.1, 1.5, np.nan, "0.2", True, 5])
def test_a_validation_split_must_be_a_fraction(value):
    def act(b):
        b.model.fit(b.x, b.y, validation_split=value)

    refused(ArgumentError, act, "validation_split", repr(value))


# ---------------------------------------------------------------------- order
@pytest.mark.parametrize("op", ["fit", "evaluate", "train_on_batch", "test_on_batch"])
def test_compile_comes_first(op):
    def act(b):
        getattr(b.model, op)(b.x, b.y)

    refused(NotCompiledError, act, f"{op}: ", "compile", make=untrained)


@bad(
    ShapeError,
    "must return one value per row",
    "received None",
    make=lambda: classifier(lambda y_true, y_pred: None),
)
def a_loss_function_without_a_return(b):
    b.model.fit(b.x, b.y)


@bad(
    ShapeError,
    "must return one value per row",
    "returned: (3,)",
    make=lambda: classifier(lambda y_true, y_pred: y_pred.mean(0)),
)
def a_loss_function_that_mixes_rows(b):
    b.model.fit(b.x, b.y)


@bad(ArgumentError, "no loss", "loss=", make=lambda: classifier(None, metrics=()))
def fit_without_a_loss(b):
    b.model.fit(b.x, b.y)


# ---------------------------------------------------------------------- callbacks
@bad(CallbackError, "instance, not a class", "EarlyStopping()")
def a_callback_class(b):
    b.model.fit(b.x, b.y, callbacks=[EarlyStopping])


@bad(CallbackError, "must be a Callback or a function", "int: 3")
def a_number_as_callback(b):
    b.model.fit(b.x, b.y, callbacks=[3])


@bad(CallbackError, "one argument, logs")
def a_function_of_two_arguments_as_callback(b):
    b.model.fit(b.x, b.y, callbacks=[lambda epoch, logs: None])


@bad(CallbackError, "listed twice", "Callback")
def one_callback_twice(b):
    one = Callback()
    b.model.fit(b.x, b.y, callbacks=[one, one])


@bad(CallbackError, "mode must be", "'largest'")
def an_unknown_mode(b):
    b.model.fit(b.x, b.y, callbacks=[EarlyStopping("loss", mode="largest")])


# ---------------------------------------------------------------------- compile
def compiling(*says, error=ArgumentError, **settings):
    """A case: ``compile`` refuses these arguments, and the model keeps its own."""
    return error, says, settings


COMPILE = {
    "optimizer": compiling("'adm'", "'adam'", error=UnknownNameError, optimizer="adm"),
    "optimizer_class": compiling(
        "optimizer must be", "Adam()", error=DTypeError, optimizer=optimizers.Adam
    ),
    "optimizer_number": compiling("0.01", error=DTypeError, optimizer=0.01),
    "loss": compiling("'mze'", "'mse'", error=UnknownNameError, loss="mze"),
    "loss_number": compiling("loss must be", "5", error=DTypeError, loss=5),
    "loss_list": compiling("'mze'", error=UnknownNameError, loss=["mse", "mze"]),
    "metric": compiling(
        "'acuracy'", "'accuracy'", error=UnknownNameError, metrics=["acuracy"]
    ),
    "weighted_metric": compiling(
        "'acuracy'", "'accuracy'", error=UnknownNameError, weighted_metrics=["acuracy"]
    ),
    "metric_number": compiling("metric", "5", error=DTypeError, metrics=[5]),
    "steps_0": compiling("steps_per_execution", "received 0", steps_per_execution=0),
    "steps_all": compiling("steps_per_execution", "'all'", steps_per_execution="all"),
    "steps_none": compiling("steps_per_execution", "None", steps_per_execution=None),
    "unroll_none": compiling("unroll", "None", unroll=None),
    "eager_name": compiling("run_eagerly", "'no'", run_eagerly="no"),
    "seed_negative": compiling("seed", "received -1", seed=-1),
    "seed_float": compiling("seed", "received 1.5", seed=1.5),
    "seed_huge": compiling("seed", "received 4294967296", seed=2**32),
    "seed_bool": compiling("seed", "received True", seed=True),
    "jit_compile": compiling("jit_compile", "'maybe'", jit_compile="maybe"),
    "loss_weight_text": compiling("loss_weights", "'much'", loss_weights="much"),
    "loss_weight_nan": compiling("loss_weights", "nan", loss_weights=float("nan")),
}


@pytest.mark.parametrize("name", COMPILE)
def test_compile_refuses(name):
    error, says, settings = COMPILE[name]

    def act(b):
        b.model.compile(**{"optimizer": "sgd", "loss": "mse"} | settings)

    refused(error, act, *says)


@bad(ArgumentError, "loss_weights", "no output 'sort'", "kind, size", make=pair)
def loss_weights_of_an_unknown_output(b):
    b.model.compile("sgd", "mse", loss_weights={"sort": 2.0})
    b.model.fit(b.x, b.y)


@bad(ArgumentError, "loss", "no output 'sort'", "kind, size", make=pair)
def loss_of_an_unknown_output(b):
    b.model.compile("sgd", {"kind": "cross_entropy", "sort": "mse"})
    b.model.fit(b.x, b.y)


@bad(ArgumentError, "metrics", "no output 'sort'", "kind, size", make=pair)
def metrics_of_an_unknown_output(b):
    b.model.compile("sgd", {"size": "mse"}, metrics={"sort": "mse"})
    b.model.fit(b.x, b.y)


@bad(ArgumentError, "loss: 3 entries for 2 outputs", make=pair)
def three_losses_for_two_outputs(b):
    b.model.compile("sgd", ["mse", "mse", "mse"])
    b.model.fit(b.x, b.y)


@bad(ArgumentError, "metrics: 3 entries for 2 outputs", make=pair)
def three_lists_of_metrics_for_two_outputs(b):
    b.model.compile("sgd", {"size": "mse"}, metrics=[["mse"], ["mse"], ["mse"]])
    b.model.fit(b.x, b.y)


# ---------------------------------------------------------------------- optimizers
OPTIMIZERS = {
    "negative_rate": ({"learning_rate": -0.1}, ArgumentError, "learning_rate"),
    "nan_rate": ({"learning_rate": float("nan")}, ArgumentError, "learning_rate"),
    "text_rate": ({"learning_rate": "fast"}, ArgumentError, "'fast'"),
    "beta": ({"beta_1": 1.5}, ArgumentError, "beta_1"),
    "two_clips": ({"clipnorm": 1.0, "clipvalue": 0.5}, ArgumentError, "clip"),
    "negative_clip": ({"clipnorm": -1.0}, ArgumentError, "clipnorm"),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_refuses(name):
    settings, error, says = OPTIMIZERS[name]
    refused(error, lambda b: b.model.compile(optimizers.Adam(**settings)), says)


@bad(ArgumentError, "learning_rate", "-1")
def a_negative_learning_rate_later(b):
    b.model.optimizer.learning_rate = -1.0


@bad(ArgumentError, "learning_rate", "'slow'")
def a_learning_rate_of_text_later(b):
    b.model.optimizer.learning_rate = "slow"
