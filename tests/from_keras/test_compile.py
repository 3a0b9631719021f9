"""The page's section "compile"."""

import inspect
import warnings

import jax
import numpy as np
import pytest
from tests.from_keras.page import says
from tests.from_keras.small import BOTH, LABELS, AtEpoch, X, Y, compiled, evaluate, fit

import exburn
from exburn.errors import ArgumentError

keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras'
ONE_HOT = np.eye(3, dtype="float32")[LABELS]


def entropy(probabilities):
    return -np.log(probabilities[np.arange(len(LABELS)), LABELS]).mean()


class OwnSoftmax(exburn.Model):
    def __init__(self):
        super().__init__()
        self.dense = exburn.layers.Dense(3)

    def call(self, x):
        return jax.nn.softmax(self.dense(x))


@says('`loss="cross_entropy"` takes one-hot or integer targets')
@pytest.mark.parametrize("form", ["logits", "activation", "layer", "function", "class"])
def test_cross_entropy_tells_logits_from_probabilities(form):
    dense = exburn.layers.Dense(3)
    stack = {
        "logits": [dense],
        "activation": [exburn.layers.Dense(3, activation="softmax")],
        "layer": [dense, exburn.layers.Softmax()],
        "function": [dense, jax.nn.softmax],
    }
    model = OwnSoftmax() if form == "class" else exburn.Sequential(stack[form])
    model.compile("sgd", "cross_entropy")
    outputs = np.asarray(model(X))
    expected = entropy(
        np.asarray(jax.nn.softmax(outputs)) if form == "logits" else outputs
    )
    assert evaluate(model, X, LABELS) == pytest.approx(expected, rel=1e-5)
    assert evaluate(model, X, ONE_HOT) == pytest.approx(expected, rel=1e-5)


@says('`loss="cross_entropy"` takes one-hot or integer targets')
def test_keras_has_no_loss_of_that_name():
    with pytest.raises(ValueError, match="cross_entropy"):
        fit(compiled(keras, keras.layers.Dense(3), loss="cross_entropy"), X, LABELS)


@says('`loss="mse"`, `"binary_cross_entropy"` and Keras\' names work')
def test_names_of_losses():
    targets = (Y > 0).astype("float32")
    values = [
        evaluate(
            compiled(exburn, exburn.layers.Dense(1, "sigmoid"), loss=name, seed=0),
            X,
            targets,
        )
        for name in (
            "binary_cross_entropy",
            "binary_crossentropy",
            "BinaryCrossentropy",
        )
    ]
    assert values[0] == values[1] == values[2]
    assert evaluate(compiled(exburn, seed=0)) == evaluate(
        compiled(exburn, loss="mean_squared_error", seed=0)
    )


@says('`loss="mse"`, `"binary_cross_entropy"` and Keras\' names work')
@pytest.mark.parametrize(
    ("loss", "units", "y"),
    [
        ("binary_crossentropy", 1, (LABELS > 1)[:, None].astype("float32")),
        ("sparse_categorical_crossentropy", 3, LABELS),
    ],
)
def test_names_of_keras_take_probabilities(loss, units, y):
    kernel = np.random.default_rng(1).normal(size=(4, units)).astype("float32")
    values = {}
    for framework in BOTH:
        module = framework.losses
        by_class = {
            "binary_crossentropy": module.BinaryCrossentropy,
            "sparse_categorical_crossentropy": module.SparseCategoricalCrossentropy,
        }[loss]
        losses = loss, by_class(), by_class(from_logits=True)
        for key, given in zip(("name", "object", "logits"), losses, strict=True):
            model = compiled(
                framework, framework.layers.Dense(units, use_bias=False), loss=given
            )
            model.set_weights([kernel])
            values[framework, key] = evaluate(model, X, y)
    for key in ("name", "object", "logits"):
        assert values[exburn, key] == pytest.approx(values[keras, key], rel=1e-5)
    assert values[exburn, "name"] == values[exburn, "object"]
    assert values[exburn, "name"] != pytest.approx(values[exburn, "logits"], rel=1e-2)
    for framework, told in ((exburn, 1), (keras, 0)):
        model = compiled(framework, framework.layers.Dense(units), loss=loss)
        with warnings.catch_warnings(record=True, action="always") as caught:
            evaluate(model, X, y)
        assert sum("as probabilities" in str(one.message) for one in caught) == told


@says("An epoch has `steps_per_epoch` steps, whatever `steps_per_execution` is")
@pytest.mark.parametrize("framework", BOTH)
def test_steps_that_executions_do_not_divide(framework):
    losses = []
    for together in (1, 2):
        model = compiled(framework, steps_per_execution=together, run_eagerly=False)
        model.set_weights([np.zeros((4, 1)), np.zeros(1)])
        fit(model, steps_per_epoch=1, shuffle=False)
        losses.append(evaluate(model))
    assert (losses[0] == losses[1]) == (framework is exburn)


@says('`steps_per_execution="auto"` is the default')
def test_the_engine_chooses_the_steps_of_a_call():
    default = {
        f: inspect.signature(f.Model.compile).parameters["steps_per_execution"].default
        for f in BOTH
    }
    assert default == {exburn: "auto", keras: 1}
    model = compiled(exburn)
    fit(model)
    steps = {d.choice: d for d in model.explain_plan()}["steps per call"]
    assert int(steps.taken) > 1


@says("`model.loss = …` is kept, and read back, but warns")
def test_a_loss_that_is_set_changes_nothing():
    model = compiled(keras)
    squared = evaluate(model)
    model.loss = "mae"
    assert model.loss == "mae" and evaluate(model) == squared

    model = compiled(exburn)
    squared = evaluate(model)
    with pytest.warns(UserWarning, match="compile"):
        model.loss = "mae"
    assert model.loss == "mae" and evaluate(model) == squared


@says("`run_eagerly` and `jit_compile` take")
@pytest.mark.parametrize("name", ["run_eagerly", "jit_compile"])
def test_what_is_no_yes_or_no_is_refused(name):
    for value in ("yes", 3):
        with pytest.raises(ArgumentError, match=name):
            compiled(exburn, **{name: value})
        with pytest.raises(ArgumentError, match=name):
            setattr(compiled(exburn), name, value)
        model = compiled(keras, **{"run_eagerly": False, name: value})
        assert getattr(model, name) == value
    for value in (True, False, None):
        model = compiled(exburn, **{name: value})
        setattr(model, name, value)
        assert getattr(model, name) is (
            bool(value) if name == "run_eagerly" else value is not False
        )


FURTHER = {
    "seed",
    "check_numerics",
    "learning_rate",
    "lr_schedule",
    "weight_decay",
    "clip_norm",
    "clip_value",
    "accumulate_gradients",
    "nesterov",
    "warmup",
    "accuracy",
    "device",
    "mesh",
    "layout",
    "unroll",
    "join_batches",
    "accumulate",
    "remat",
    "privacy",
}


@says("are further arguments of `compile`")
def test_further_arguments_of_compile():
    ours, theirs = (inspect.signature(f.Model.compile).parameters.keys() for f in BOTH)
    assert ours - theirs == FURTHER and theirs <= ours


@says("`jit_compile=False` is the same as")
def test_no_compilation_is_to_run_eagerly():
    model = compiled(exburn, jit_compile=False)
    assert model.run_eagerly is True
    assert keras.Sequential([keras.layers.Dense(1)]).run_eagerly is False
    model = compiled(keras, jit_compile=False, run_eagerly=False)
    assert model.run_eagerly is False and model.jit_compile is False


@says("`layer.trainable = False` takes effect")
@pytest.mark.parametrize("again", [False, True])
def test_a_layer_frozen_after_compile_and_after_fit(again):
    stack = [f.layers.Dense(2) for f in BOTH], [f.layers.Dense(1) for f in BOTH]
    for framework, first, second in zip(BOTH, *stack, strict=True):
        model = compiled(framework, first, second)
        if again:
            fit(model)
        before = model.get_weights()
        first.trainable = False
        if framework is keras and again:
            with pytest.raises(ValueError, match="trainable variables"):
                fit(model, epochs=1)
        else:
            fit(model)
            changed = [
                (a != b).any() for a, b in zip(before, model.get_weights(), strict=True)
            ]
            assert changed == [False, False, True, True]


@says("A number of a layer, regularizer or loss that changes")
@pytest.mark.parametrize("framework", BOTH)
def test_numbers_that_change_hold_from_the_next_chunk_on(framework):
    """The weights stay at 1 (the rate is 0): the losses show the numbers."""

    class Scale(framework.layers.Layer):
        factor = 1.0

        def call(self, x):
            return x * self.factor

    scale = Scale()
    dense = framework.layers.Dense(1, kernel_initializer="ones", use_bias=False)
    still = framework.optimizers.SGD(0.0)
    model = compiled(framework, dense, scale, optimizer=still, run_eagerly=False)
    hook = AtEpoch(lambda epoch: setattr(scale, "factor", 1.0 + epoch))
    got = fit(model, X, 0 * Y, epochs=3, callbacks=[hook])["loss"]
    factors = np.array([1, 2, 3] if framework is exburn else [1, 1, 1])
    assert got == pytest.approx(factors**2 * np.mean(Y**2), rel=1e-4)


@says("A number of a layer, regularizer or loss that changes")
def test_weights_of_losses_that_change():
    for framework in BOTH:
        model = compiled(framework, loss_weights=1.0, run_eagerly=False)
        before = evaluate(model)
        model.loss_weights = 2.0
        factor = 2 if framework is exburn else 1
        assert evaluate(model) == pytest.approx(factor * before, rel=1e-5)
