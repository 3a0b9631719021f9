"""A device that runs out of memory: an error with figures, and the model goes on."""

import functools

import jax
import numpy as np
import pytest
from tests.distribution.devices import on_devices
from tests.models.networks import network

from exburn.errors import BusyError, OutOfMemoryError
from exburn.models import planning

X = np.random.default_rng(0).standard_normal((96, 6)).astype(np.float32)
Y = np.arange(96) % 3


def exhausted(*_, **__):
    raise jax.errors.JaxRuntimeError(
        "RESOURCE_EXHAUSTED: Out of memory allocating 9999999999 bytes."
    )


@pytest.mark.parametrize(
    ("program", "run"),
    [
        ("train", lambda m: m.fit(X, Y, verbose=0)),
        ("evaluate", lambda m: m.evaluate(X, Y, verbose=0)),
        ("evaluate", lambda m: m.test_on_batch(X, Y)),
        ("predict", lambda m: m.predict(X, verbose=0)),
    ],
)
def test_it_is_an_error_with_figures_and_the_model_goes_on(program, run, monkeypatch):
    model = network()
    model.fit(X, Y, verbose=0)
    model.evaluate(X, Y, verbose=0)
    before = model.get_weights()
    programs = model._training_session.preparer.programs
    monkeypatch.setattr(planning, "free_bytes", lambda devices: 1 << 10)
    monkeypatch.setattr(planning, "largest_batch", lambda *_: 7)
    with monkeypatch.context() as patch:
        patch.setattr(programs, program, exhausted)
        with pytest.raises(OutOfMemoryError, match="that fits: 7") as caught:
            run(model)
    assert isinstance(caught.value, MemoryError)
    assert caught.value.plan.batch_size in (32, 96)
    assert isinstance(caught.value.__cause__, jax.errors.JaxRuntimeError)
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    run(model)


@on_devices
def test_on_a_mesh_the_figures_are_those_of_a_device():
    for mesh, hint in (("data", True), ("fsdp", False)):
        model = network(mesh=mesh)
        model.fit(X, Y, verbose=0)
        programs = model._training_session.preparer.programs
        programs.train = exhausted
        with pytest.raises(OutOfMemoryError) as caught:
            model.fit(X, Y, verbose=0)
        plan = model.plan(32)
        assert caught.value.plan.peak_bytes == plan.peak_bytes
        assert f"(DeviceMesh({mesh}=8)); figures of each" in str(caught.value)
        assert ('compile(mesh="fsdp")' in str(caught.value)) is hint


def consume(state, *_, error=exhausted):
    for leaf in jax.tree.leaves(state):
        if isinstance(leaf, jax.Array):
            leaf.delete()
    error()


@pytest.mark.parametrize("full", [False, True])
def test_a_state_that_the_failed_program_consumed_is_restored(full, monkeypatch):
    model = network()
    monkeypatch.setattr(planning, "largest_batch", lambda *_: 7)
    model.train_on_batch(X[:32], Y[:32])
    before, step = model.get_weights(), model.optimizer.iterations
    programs = model._training_session.preparer.programs

    with monkeypatch.context() as patch:
        patch.setattr(programs.train, "_call", consume)
        if full:  # nor is there room for the copy
            patch.setattr(jax, "device_put", exhausted)
        with pytest.raises(OutOfMemoryError):
            model.fit(X, Y, verbose=0)
    assert model.optimizer.iterations == step
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    model.fit(X, Y, verbose=0)
    assert model.optimizer.iterations == step + 3


def fails():
    raise jax.errors.JaxRuntimeError("INTERNAL: the device is gone")


@pytest.mark.parametrize(
    ("error", "raised", "said"),
    [
        (exhausted, OutOfMemoryError, "has consumed the weights"),
        (fails, jax.errors.JaxRuntimeError, "the device is gone"),
    ],
)
def test_a_later_step_that_fails_says_what_is_lost(error, raised, said, monkeypatch):
    model = network()
    model.fit(X, Y, verbose=0)  # such data have been run on: no copy is kept
    programs = model._training_session.preparer.programs
    failing = functools.partial(consume, error=error)
    monkeypatch.setattr(programs.train, "_call", failing)
    with pytest.raises(raised, match=said):
        model.fit(X, Y, verbose=0)
    with pytest.raises(BusyError, match="load what was saved last"):
        model.get_weights()


def test_other_errors_stay_what_they_are(monkeypatch):
    model = network()

    def fail(logs):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        model.fit(X, Y, verbose=0, callbacks=[fail])

    def filled(logs):
        raise MemoryError("Unable to allocate 1 TiB for an array")  # NumPy's words

    with pytest.raises(MemoryError, match="1 TiB") as caught:
        model.fit(X, Y, verbose=0, callbacks=[filled])
    assert type(caught.value) is MemoryError
