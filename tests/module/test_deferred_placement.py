"""Weights that are made while a GPU starts, here a CPU that says that it does."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import exburn as keras
from exburn import layers
from exburn.module import deferred_placement
from exburn.training import epochs

RNG = np.random.default_rng(0)
X = RNG.standard_normal((48, 4)).astype("float32")
Y = RNG.integers(0, 3, 48)


@pytest.fixture
def starting(monkeypatch):
    """Says that a GPU is being started; notes what waited when a program was begun."""
    deferred_placement.arrive()  # on a GPU some may really wait
    monkeypatch.setattr(deferred_placement, "waking", lambda: True)
    monkeypatch.setattr(epochs, "waking", lambda: True)
    begun = []
    compile_training = epochs.Epochs._compile_training

    def noted(self):
        begun.append(len(deferred_placement._waiting))
        compile_training(self)
        assert begun[-1] == len(deferred_placement._waiting), "a trace needs no arrays"

    monkeypatch.setattr(epochs.Epochs, "_compile_training", noted)
    yield begun
    deferred_placement._waiting.clear()


def classifier(seed=3, **options):
    model = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(8, activation="relu"),
            layers.BatchNormalization(),
            layers.Dense(3),
        ]
    )
    model.compile("adam", "cross_entropy", metrics=["accuracy"], seed=seed, **options)
    return model


def trained(**given):
    model = classifier()
    history = model.fit(X, Y, batch_size=16, epochs=2, verbose=0, **given)
    return model, history.history


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("held", [{}, {"validation_data": (X, Y)}])
def test_training_is_the_same_and_compiled_once(request, resident, held):
    plain, history = trained(resident=resident, **held)
    begun = request.getfixturevalue("starting")
    model, found = trained(resident=resident, **held)
    assert begun and begun[0] and not deferred_placement._waiting
    assert found == history
    for ours, theirs in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert model.trace_counts == plain.trace_counts
    assert model.trace_counts["train"] == 1


def test_a_group_of_accumulated_batches(request):
    def run():
        model = classifier()
        optimizer = keras.optimizers.Adam(gradient_accumulation_steps=3)
        model.compile(optimizer, "cross_entropy", seed=3)
        return model, model.fit(X, Y, batch_size=8, epochs=2, verbose=0).history

    plain, history = run()
    request.getfixturevalue("starting")
    model, found = run()
    assert found == history and model.trace_counts == plain.trace_counts


@pytest.mark.parametrize("use", ["evaluate", "predict", "call", "train_on_batch"])
def test_every_use_brings_them(starting, use):
    model = classifier()
    assert deferred_placement._waiting
    if use == "evaluate":
        model.evaluate(X, Y, verbose=0)
    elif use == "predict":
        model.predict(X, verbose=0)
    elif use == "call":
        model(X)
    else:
        model.train_on_batch(X, Y)
    assert not deferred_placement._waiting


def test_what_was_set_meanwhile_stays(starting):
    model = classifier()
    given = [np.full(w.shape, 0.5, "float32") for w in model.get_weights()]
    model.set_weights(given)
    model.predict(X, verbose=0)
    for found in model.get_weights():
        assert (found == 0.5).all()


def test_another_seed_draws_them_again(request):
    plain = [w.copy() for w in classifier(seed=5).get_weights()]
    request.getfixturevalue("starting")
    model = classifier(seed=3)
    deferred_placement.arrive()
    model.compile("adam", "cross_entropy", seed=5)
    model.predict(X, verbose=0)
    for ours, theirs in zip(model.get_weights(), plain, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_inside_of_a_trace_they_wait(starting):
    model = classifier()
    made = jax.jit(lambda x: model(x))(X)
    assert deferred_placement._waiting
    np.testing.assert_allclose(made, model(X), atol=1e-6)


DEVICES = """
import jax, numpy as np
import exburn as keras
from exburn.module import deferred_placement as arrival
first, second = jax.devices()
arrival.waking, arrival.host = (lambda: True), (lambda: second)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
kernel = model.layers[-1].kernel
assert kernel.value.devices() == {second} and not kernel.value.committed
x = jax.device_put(np.ones((2, 4), np.float32))
by_hand = x @ kernel.value
assert by_hand.devices() == {first}
made = model.predict(np.ones((2, 4), "float32"), verbose=0)
assert kernel.value.devices() == {first} and not kernel.value.committed
np.testing.assert_allclose(made, by_hand, rtol=1e-6)
with jax.default_device(second):
    other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
arrival.arrive()
assert other.layers[-1].kernel.value.devices() == {second}
print("fine")
"""


def test_they_move_from_one_device_to_the_other():
    done = subprocess.run(
        [sys.executable, "-c", DEVICES],
        env={
            "PATH": "",
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
            "EXBURN_COMPILATION_CACHE": "off",
        },
        capture_output=True,
        text=True,
    )
    assert done.stdout == "fine\n", done.stderr
