"""What can be done with a model while it is being trained, and what cannot."""

import operator
import threading

import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.callbacks import Callback
from exburn.errors import BusyError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(48, 4)).astype(np.float32)
Y = RNG.normal(size=(48, 1)).astype(np.float32)
DATA = {"x": X, "y": Y, "batch_size": 16, "verbose": 0}


@pytest.fixture(scope="module")
def model():
    made = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(1)])
    made.compile("sgd", "mse", seed=0)
    made.fit(**DATA, validation_data=(X, Y))
    return made


@pytest.mark.parametrize(
    "hook",
    [
        "on_train_begin",
        "on_epoch_begin",
        "on_test_begin",
        "on_test_batch_begin",
        "on_test_batch_end",
        "on_test_chunk_end",
        "on_test_end",
        "on_chunk_end",
        "on_checkpoint",
        "on_epoch_end",
        "on_train_end",
    ],
)
def test_a_hook_sees_the_weights(model, hook):
    seen = []

    def look(self, *args, **kwargs):
        kernel, bias = self.model.get_weights()
        np.testing.assert_allclose(
            self.model.predict(X, verbose=0), X @ kernel + bias, rtol=1e-5, atol=1e-6
        )
        seen.append(kernel)

    callback = type("Look", (Callback,), {hook: look})()
    model.fit(**DATA, validation_data=(X, Y), callbacks=[callback])
    trained = hook not in ("on_train_begin", "on_epoch_begin")
    assert seen and trained == bool((seen[-1] == model.get_weights()[0]).all())


@pytest.mark.parametrize("hook", ["on_chunk_end", "on_test_begin", "on_epoch_end"])
def test_a_light_hook_is_told_that_the_weights_are_gone(model, hook, tmp_path):
    uses = {
        "get_weights": lambda model: model.get_weights(),
        "numpy": lambda model: model.weights[0].numpy(),
        "array": lambda model: np.asarray(model.weights[0]),
        "value": lambda model: model.weights[0].value,
        "layer": lambda model: model.layers[0].get_weights(),
        "call": lambda model: model(X),
        "clone": lambda model: model.clone(),
        "save": lambda model: model.save(tmp_path / "model.exburn"),
        "save_weights": lambda model: model.save_weights(tmp_path / "w.safetensors"),
    }
    said = set()

    def look(self, *args, **kwargs):
        for name, use in uses.items():
            with pytest.raises(BusyError, match="without light = True"):
                use(self.model)
            said.add(name)
        assert self.model.count_params() == 5 and "Dense" in self.model.to_json()

    callback = type("Look", (Callback,), {hook: look, "light": True})()
    model.fit(**DATA, validation_data=(X, Y), callbacks=[callback])
    assert said == uses.keys() and list(tmp_path.iterdir()) == []
    for use in uses.values():
        use(model)


@pytest.mark.parametrize("hook", ["on_train_begin", "on_train_end"])
def test_a_light_callback_has_the_weights_at_the_beginning_and_the_end(model, hook):
    weights = []

    def look(self, logs=None):
        weights.append(self.model.get_weights())
        assert np.isfinite(self.model.predict(X, verbose=0)).all()

    callback = type("Look", (Callback,), {hook: look, "light": True})()
    before = model.get_weights()
    model.fit(**DATA, callbacks=[callback])
    current = before if hook == "on_train_begin" else model.get_weights()
    np.testing.assert_array_equal(weights[0][0], current[0])


def test_weights_set_between_two_chunks_are_trained_on(model, monkeypatch):
    monkeypatch.setattr("exburn.training.chunk_loop.GLANCE", 0.0)
    model.compile("sgd", "mse", seed=0, steps_per_execution=1)
    model.optimizer.learning_rate = 0.0  # what was set stays
    done = []

    class Put(Callback):
        def on_chunk_end(self, step, logs=None):
            if step == 1:
                self.model.set_weights([np.full_like(w, 3) for w in self.get()])
            done.append((step, self.get()[1].item()))

        def get(self):
            return self.model.get_weights()

    model.fit(**DATA, callbacks=[Put()])
    assert done == [(1, 3.0), (2, 3.0), (3, 3.0)]
    assert all((w == 3).all() for w in model.get_weights())


def test_a_validation_uses_the_weights_that_its_callback_sets(model):
    class Zero(Callback):
        def on_test_begin(self, logs=None):
            self.model.set_weights([0 * w for w in self.model.get_weights()])

    history = model.fit(**DATA, validation_data=(X, Y), callbacks=[Zero()]).history
    np.testing.assert_allclose(history["val_loss"], np.square(Y).mean(), rtol=1e-6)


@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize(
    ("op", "hook"),
    [
        ("fit", "on_epoch_end"),
        ("train_on_batch", "on_train_batch_end"),
        ("predict", "on_chunk_end"),
        ("evaluate", "on_chunk_end"),
    ],
)
def test_a_second_use_is_an_error_that_costs_nothing(model, op, hook, thread):
    said = []

    def use():
        options = {"fit": DATA, "predict": {"x": X}}.get(op, {"x": X, "y": Y})
        with pytest.raises(BusyError, match=f"{op}: the model is being trained"):
            getattr(model, op)(**options)
        said.append(op)

    def meanwhile(self, *args, **kwargs):
        if thread:
            other = threading.Thread(target=use)
            other.start()
            other.join()
        else:
            use()

    start, results = model.get_weights(), []
    light = {"light": hook == "on_chunk_end"}  # else it could use the model
    listening = type("Meanwhile", (Callback,), {hook: meanwhile} | light)()
    for callbacks in ([], [listening]):
        model.set_weights(start)
        model.compile("sgd", "mse", seed=0)
        model.fit(**DATA, callbacks=callbacks)
        results.append(model.get_weights())
    assert said
    for alone, disturbed in zip(*results, strict=True):
        np.testing.assert_allclose(alone, disturbed, rtol=1e-6)
    model.train_on_batch(X, Y)


def test_a_part_of_a_model_in_training_is_busy():
    part = exburn.Sequential([exburn.Input((4,)), layers.Dense(2)])
    whole = exburn.Sequential([exburn.Input((4,)), part, layers.Dense(1)])
    whole.compile("sgd", loss="mse")

    class Predicts(Callback):
        light = True

        def on_chunk_end(self, step, logs=None):
            part.predict(X, verbose=0)

    with pytest.raises(BusyError, match="is being trained"):
        whole.fit(**DATA, callbacks=[Predicts()])
    assert np.isfinite(part.predict(X, verbose=0)).all()


def test_training_leaves_arrays_alone_that_were_assigned():
    x, y = np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)
    pair = [exburn.Sequential([exburn.Input((2,)), layers.Dense(1)]) for _ in "ab"]
    for model in pair:
        model.compile("adam", loss="mse")
        model.train_on_batch(x, y)
    source, target = pair
    given = jnp.ones((2, 1))
    source.layers[0].kernel.assign(given)
    for kind in ("weights", "optimizer.variables"):
        variables = [operator.attrgetter(kind)(model) for model in pair]
        for theirs, own in zip(*variables, strict=True):
            own.assign(theirs)
    before = target.get_weights()
    source.train_on_batch(x, y)
    assert float(given.sum()) == 2
    np.testing.assert_array_equal(target.get_weights()[0], before[0])
    target.train_on_batch(x, y)
    source.train_on_batch(x, y)


def test_the_rate_cannot_be_set_from_another_thread():
    """A program may consume the optimizer's state at that moment: it would be lost."""
    made = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(1)])
    made.compile("adam", "mse", seed=0)

    def batches():
        while True:
            made.optimizer.learning_rate = 0.5
            yield X, Y

    made.fit(**DATA)
    with pytest.raises(BusyError, match="optimizer: the model is being trained"):
        made.fit((batch for batch in batches()), steps_per_epoch=3, verbose=0)
    rates = []

    class Rate(Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.optimizer.learning_rate = 0.25
            rates.append(self.model.optimizer.learning_rate)

    made.fit(**DATA, callbacks=[Rate()])
    assert rates == [0.25] and made.optimizer.learning_rate == 0.25
