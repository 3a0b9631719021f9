"""SAM and Sophia: optimizers that evaluate the loss of a step again."""

import jax
import jax.numpy as jnp
import numpy as np
import optax.contrib
import pytest
from tests.distribution.devices import on_devices

import exburn
from exburn import layers
from exburn.callbacks import StateCheckpoint
from exburn.errors import ArgumentError
from exburn.optimizers import SAM, SGD, Adam, LossScaleOptimizer, Sophia

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 4)).astype(np.float32)
Y = np.tanh(X @ RNG.normal(size=(4, 2))).astype(np.float32)


def network(optimizer, **options):
    exburn.utils.set_random_seed(0)
    body = [layers.Dense(6, "tanh"), layers.BatchNormalization(), layers.Dense(2)]
    model = exburn.Sequential([exburn.Input((4,)), *body])
    model.compile(optimizer, "mse", seed=0, **options)
    return model


def curve(p):
    return jnp.sum(jnp.cosh(p["a"]) * jnp.arange(1.0, 4.0)) + p["b"] ** 4


def steps(optimizer, count):
    params = {"a": jnp.asarray([1.0, -2.0, 0.5]), "b": jnp.asarray(1.5)}
    state = optimizer.init(params)
    for _ in range(count):
        grads = jax.grad(curve)(params)
        params, state = optimizer.update(grads, state, params, value_fn=curve)
    return params


def test_steps_of_sam_are_those_of_optax():
    rho, rate = 0.2, 0.01
    ascent = optax.chain(optax.contrib.normalize(), optax.sgd(rho))
    rule = optax.contrib.sam(optax.sgd(rate), ascent, opaque_mode=True)
    params = {"a": jnp.asarray([1.0, -2.0, 0.5]), "b": jnp.asarray(1.5)}
    state = rule.init(params)
    for _ in range(3):
        grads = jax.grad(curve)(params)
        updates, state = rule.update(
            grads, state, params, grad_fn=lambda p, _: jax.grad(curve)(p)
        )
        params = optax.apply_updates(params, updates)
    ours = steps(SAM(rate, rho=rho, momentum=0.0), 3)
    for name, value in params.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-5)


def test_adaptive_steps_are_those_of_the_paper():
    p = np.array([1.0, -2.0, 0.5, 1.5])
    sizes = np.array([1.0, 2.0, 3.0])
    for _ in range(2):
        g = np.r_[np.sinh(p[:3]) * sizes, 4 * p[3] ** 3]
        e = 0.3 * p**2 * g / np.linalg.norm(np.abs(p) * g)
        q = p + e
        p = p - 0.01 * np.r_[np.sinh(q[:3]) * sizes, 4 * q[3] ** 3]
    ours = steps(SAM(0.01, rho=0.3, adaptive=True, momentum=0.0), 2)
    np.testing.assert_allclose(np.r_[ours["a"], ours["b"]], p, rtol=1e-5)


def test_steps_of_sophia_are_those_of_the_paper():
    p, m, h = np.array([1.0, -2.0, 0.5, 1.5]), np.zeros(4), np.zeros(4)
    sizes = np.array([1.0, 2.0, 3.0])
    for t in range(5):
        g = np.r_[np.sinh(p[:3]) * sizes, 4 * p[3] ** 3]
        m = 0.9 * m + 0.1 * g
        if t % 2 == 0:  # of a diagonal Hessian the estimate is exact
            h = 0.8 * h + 0.2 * np.r_[np.cosh(p[:3]) * sizes, 12 * p[3] ** 2]
        p = p - 0.05 * np.clip(m / np.maximum(0.5 * h, 1e-12), -1, 1)
    options = {"beta_1": 0.9, "beta_2": 0.8, "gamma": 0.5, "update_interval": 2}
    ours = steps(Sophia(0.05, **options), 5)
    np.testing.assert_allclose(np.r_[ours["a"], ours["b"]], p, rtol=1e-5)


def test_without_a_radius_it_is_sgd():
    sam, sgd = network(SAM(0.1, rho=0.0)), network(SGD(0.1, momentum=0.9))
    for model in (sam, sgd):
        model.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    for one, other in zip(sam.get_weights(), sgd.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    assert sam.trace_counts["train"] == 1
    with_radius = network(SAM(0.1, rho=0.5))
    with_radius.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    assert np.abs(with_radius.get_weights()[0] - sam.get_weights()[0]).max() > 1e-3


@pytest.mark.parametrize("name", ["sam", "sophia"])
def test_fits_go_on_from_checkpoints_and_files(name, tmp_path):
    def trained(epochs, **options):
        model = network(name, learning_rate=0.05)
        history = model.fit(X, Y, batch_size=8, epochs=epochs, verbose=0, **options)
        return model, history.history["loss"]

    whole, losses = trained(4)
    assert losses[-1] < losses[0]
    trained(2, callbacks=[StateCheckpoint(tmp_path / "run")])
    again, rest = trained(4, resume=tmp_path / "run")
    assert rest == losses
    for one, other in zip(whole.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    whole.save(tmp_path / "model.exburn")
    other = exburn.load_model(tmp_path / "model.exburn")
    assert other.optimizer.get_config() == whole.optimizer.get_config()
    first, second = (m.fit(X, Y, epochs=1, verbose=0) for m in (whole, other))
    np.testing.assert_allclose(first.history["loss"], second.history["loss"], rtol=1e-5)


@on_devices
@pytest.mark.parametrize("name", ["sam", "sophia"])
def test_devices_that_divide_rows_take_the_same_steps(name):
    alone, divided = network(name), network(name, mesh="data")
    for model in (alone, divided):
        model.fit(X, Y, batch_size=8, epochs=2, verbose=0)
    for one, other in zip(alone.get_weights(), divided.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_mixed_precision_trains():
    inputs = exburn.Input((4,))
    h = layers.Dense(6, "tanh", dtype="mixed_bfloat16")(inputs)
    model = exburn.Model(inputs, layers.Dense(2)(h))
    model.compile("sam", "mse", learning_rate=0.1, seed=0)
    losses = model.fit(X, Y, epochs=4, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("kind", [SAM, Sophia])
def test_what_it_cannot_do_is_refused(kind):
    name = kind.__name__
    with pytest.raises(ArgumentError, match="needs the loss as a function"):
        kind().update(
            {"w": jnp.ones(1)}, kind().init({"w": jnp.ones(1)}), {"w": jnp.ones(1)}
        )
    with pytest.raises(ArgumentError, match=f"{name}.*cannot be accumulated"):
        network(kind(), accumulate_gradients=2).fit(X, Y, verbose=0)
    with pytest.raises(ArgumentError, match="needs the plain loss"):
        LossScaleOptimizer(kind())
    with pytest.raises(ArgumentError, match="evaluates"):
        exburn.optimizers.MultiOptimizer(
            exburn.optimizers.OptimizerMap(kind(), {"dense": Adam()})
        )


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (SAM, {"rho": -1}),
        (SAM, {"momentum": 2}),
        (Sophia, {"gamma": 0}),
        (Sophia, {"update_interval": 0}),
        (Sophia, {"beta_2": 1}),
    ],
)
def test_numbers_out_of_range_are_refused(kind, options):
    with pytest.raises(ArgumentError, match=next(iter(options))):
        kind(**options)
