"""The page's section "Callbacks"."""

import pytest
from tests.from_keras.page import says
from tests.from_keras.small import BOTH, compiled, fit

import exburn
from exburn.errors import DTypeError

keras = pytest.importorskip("keras")
each = pytest.mark.parametrize("framework", BOTH)

UNTESTED = {
    "More is in [Callbacks: differences from Keras]": (
        "a link; tests/callbacks/test_keras_parity.py compares what it leads to"
    ),
}


def steps_seen(framework, every=None, base=None):
    """What a batch hook sees of six steps."""
    seen = []

    class Hook(base or framework.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append((batch, float(logs["loss"])))

    hook = Hook()
    if every:
        hook.every = every
    model = compiled(framework)
    loss = fit(model, batch_size=8, callbacks=[hook])["loss"][0]
    return [batch for batch, _ in seen], seen[-1][1] == pytest.approx(loss), model


@says("Batch hooks are called after every step")
@each
def test_batch_hooks(framework):
    batches, last_is_the_epochs, model = steps_seen(framework)
    assert batches == [0, 1, 2, 3, 4, 5] and last_is_the_epochs
    if framework is exburn:
        steps = {d.choice: d for d in model.explain_plan()}["steps per call"]
        assert steps.taken == "1"


@says("calls them after every n-th step")
@each
def test_batch_hooks_after_every_third_step(framework):
    batches, _, model = steps_seen(framework, every=3)
    assert batches == ([2, 5] if framework is exburn else [0, 1, 2, 3, 4, 5])
    if framework is exburn:
        steps = {d.choice: d for d in model.explain_plan()}["steps per call"]
        assert steps.taken == "3"


@says("A plain function in `callbacks` is called at the end of every epoch")
@each
def test_a_function_as_a_callback(framework):
    logs = []
    options = {"epochs": 2, "callbacks": [lambda log: logs.append(dict(log))]}
    if framework is exburn:
        history = fit(compiled(exburn), **options)
        assert [log["loss"] for log in logs] == history["loss"]
    else:
        with pytest.raises(AttributeError, match="has no attribute"):
            fit(compiled(keras), **options)


@says("Callbacks that derive from Keras' own `Callback` are called as well")
def test_callbacks_of_keras():
    batches, last_is_the_epochs, _ = steps_seen(exburn, base=keras.callbacks.Callback)
    assert batches == [0, 1, 2, 3, 4, 5] and last_is_the_epochs
    stop = keras.callbacks.EarlyStopping("loss", patience=0, min_delta=1e9)
    assert len(fit(compiled(exburn), epochs=5, callbacks=[stop])["loss"]) == 2


@says("of the package `keras` are refused")
@pytest.mark.parametrize("part", ["layer", "loss", "metric", "optimizer"])
def test_other_objects_of_keras(part):
    make = {
        "layer": lambda: compiled(exburn, keras.layers.Dense(1)),
        "loss": lambda: compiled(exburn, loss=keras.losses.MeanSquaredError()),
        "metric": lambda: compiled(exburn, metrics=[keras.metrics.MeanSquaredError()]),
        "optimizer": lambda: compiled(exburn, optimizer=keras.optimizers.SGD()),
    }
    with pytest.raises(DTypeError, match="of the package keras, not of exburn"):
        fit(make[part]())
