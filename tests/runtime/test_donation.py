"""Training consumes its arrays: those that somebody else holds stay."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import exburn
from exburn import layers
from exburn.callbacks import Callback, LearningRateScheduler
from exburn.metrics import Mean
from exburn.optimizers import LossScaleOptimizer
from exburn.runtime import donation

RNG = np.random.default_rng(0)
X = RNG.normal(size=(32, 3)).astype(np.float32)
KERNEL = RNG.normal(size=(3, 3)).astype(np.float32)
Y = X @ KERNEL


class Plain(nnx.Module):
    """A user's own module around an array of the user's."""

    def __init__(self, kernel):
        self.kernel = nnx.Param(kernel)

    def __call__(self, x):
        return x @ self.kernel


def made(*inside):
    inside = inside or (layers.Dense(3, use_bias=False),)
    model = exburn.Sequential([exburn.Input((3,)), *inside])
    model.compile("adam", "mse", seed=0)
    return model


def by_index(given):
    model = made()
    model.layers[0].kernel[...] = given
    return model


def by_set_value(given):
    model = made()
    model.layers[0].kernel.set_value(given)
    return model


def by_the_same_memory(given):
    model = made()
    model.layers[0].kernel[...] = jax.device_put(given, jax.devices()[0])
    return model


def on_its_device(given):
    model = by_index(given)
    return model.to_device(jax.devices()[0])


def by_set_weights(given):
    model = made()
    model.set_weights([given])
    return model


def by_state(given):
    model = made()
    graph, state = nnx.split(model)
    nnx.update(model, jax.tree.map(lambda _: given, state))
    return model


def in_a_module(given):
    return made(Plain(given))


def in_two_weights(given):
    model = made(layers.Dense(3, use_bias=False), Plain(given))
    model.layers[0].kernel[...] = given
    return model


@pytest.mark.parametrize(
    "build",
    [
        by_index,
        by_set_value,
        by_the_same_memory,
        on_its_device,
        by_set_weights,
        by_state,
        in_a_module,
        in_two_weights,
    ],
)
def test_arrays_that_weights_were_set_to_stay(build):
    given = jnp.array(KERNEL)
    one, other, alone = build(given), build(given), build(jnp.array(KERNEL))
    for model in (one, alone):
        model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
        model.train_on_batch(X, Y)
    np.testing.assert_array_equal(given, KERNEL)
    np.testing.assert_array_equal(other.get_weights()[0], KERNEL)
    for mine, theirs in zip(one.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


class Keeps(Callback):
    """Keeps what a callback sees, not copies."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def on_epoch_end(self, epoch, logs=None):
        arrays = arrays_of(self.model)
        self.kept += [(array, np.array(array)) for array in arrays]


def arrays_of(model):
    slots = [variable.value for variable in model.optimizer.variables]
    return [weight.get_value() for weight in model.weights] + slots


def test_arrays_that_were_read_stay():
    model, keeps = made(layers.Dense(3), layers.BatchNormalization()), Keeps()
    model.fit(X, Y, verbose=0)
    keeps.set_model(model)
    keeps.on_epoch_end(-1)
    model.fit(X, Y, epochs=3, callbacks=[keeps], verbose=0)
    keeps.on_epoch_end(-1)
    model.train_on_batch(X, Y)
    assert len(keeps.kept) == 5 * len(arrays_of(model))
    for array, values in keeps.kept:
        np.testing.assert_array_equal(array, values)


def test_nothing_is_copied_that_nobody_else_holds(monkeypatch):
    copied = []
    shim = types.SimpleNamespace(copy=lambda array: copied.append(array) or +array)
    monkeypatch.setattr(donation, "jnp", shim)
    model = made(layers.Dense(3), layers.BatchNormalization())
    paced = LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1))
    for _ in range(2):
        model.fit(X, Y, epochs=3, verbose=0, callbacks=[paced], validation_split=0.5)
        model.set_weights(model.get_weights())
        model.summary(print_fn=lambda line: None)
        model(X)
        model.train_on_batch(X, Y)
        model.optimizer.learning_rate = 0.1
    assert not copied


def test_a_variable_in_two_places_stays_one():
    first, second = (layers.Dense(3, use_bias=False) for _ in "ab")
    first.build((None, 3))
    second.build((None, 3))
    second.kernel = first.kernel
    model = made(first, second)
    held = first.kernel.value
    model.fit(X, Y, verbose=0)
    assert len(model.get_weights()) == 1 and first.kernel is second.kernel
    assert held.shape == (3, 3) and not held.is_deleted()


def test_variables_of_optimizers_and_metrics_have_their_own_memory():
    model, total = made(), Mean().variables[0]
    model.fit(X, Y, verbose=0)
    slot = next(v for v in model.optimizer.variables if v.shape == (3, 3))
    # Where NumPy's memory is aligned as XLA wants it, a CPU would share it.
    memory = np.zeros(100, np.float32)
    start = -memory.ctypes.data % 64 // 4
    given = memory[start : start + 9].reshape(3, 3)
    scalar = np.zeros((), np.float32)
    slot.assign(given)
    total.assign(scalar)
    given[...], scalar[...] = 7, 7
    assert slot.numpy().tolist() == [[0] * 3] * 3 and float(total) == 0
    added = slot.assign_add(np.ones((3, 3))).value
    assert added is slot.value
    assert slot.assign_sub(1).numpy().sum() == 0
    assert total.assign_add(2).assign_sub(0.5).numpy() == 1.5


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_optimizer_goes_on_when_the_model_is_compiled_again(wrapped):
    """As in Keras; what somebody read of its state stays."""
    again, once = made(), made()
    if wrapped:  # a policy of float16 puts a LossScaleOptimizer around
        for model in (again, once):
            model.layers[0].dtype_policy = "mixed_float16"
            model.compile(exburn.optimizers.Adam(), "mse", seed=0)
    assert isinstance(again.optimizer, LossScaleOptimizer) == wrapped
    own = getattr(again.optimizer, "inner_optimizer", again.optimizer)
    again.fit(X, Y, epochs=2, shuffle=False, verbose=0)
    read = [v.value for v in again.optimizer.variables]
    for optimizer in (again.optimizer, own):
        again.compile(optimizer, "mse", metrics=["mae"], seed=0)
        assert again.optimizer.iterations == 2
    again.fit(X, Y, epochs=2, shuffle=False, verbose=0)
    once.fit(X, Y, epochs=4, shuffle=False, verbose=0)
    assert again.optimizer.iterations == 4
    for a, b in zip(again.get_weights(), once.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert all(np.isfinite(np.asarray(v)).all() for v in read)
    again.compile(exburn.optimizers.Adam(), "mse")
    assert again.optimizer.iterations == 0


def test_an_optimizer_begins_anew_with_another_model():
    first, second = made(), made()
    first.fit(X, Y, verbose=0)
    second.compile(first.optimizer, "mse")
    assert second.optimizer.iterations == 0
