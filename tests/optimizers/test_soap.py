"""SOAP and Shampoo, beside their papers' steps in NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError
from exburn.optimizers import SOAP, Shampoo

RNG = np.random.default_rng(0)


def along(matrix, g, axis):
    return np.moveaxis(np.tensordot(matrix, g, (1, axis)), 0, axis)


def products(g, axis):
    rows = np.moveaxis(g, axis, 0).reshape(g.shape[axis], -1)
    return rows @ rows.T


def soap(p, gradients, rate, beta_1, beta_2, epsilon, interval):
    """As ``soap.py`` of N. Vyas, without decay: the first gradient is for the bases."""
    axes = range(p.ndim) if p.ndim > 1 else ()
    averages = {a: np.zeros((p.shape[a],) * 2) for a in axes}
    m, v, bases = np.zeros_like(p), np.zeros_like(p), {}
    for t, g in enumerate(gradients):
        if t:
            turned = g
            for a in axes:
                turned = along(bases[a].T, turned, a)
            m = beta_1 * m + (1 - beta_1) * turned
            v = beta_2 * v + (1 - beta_2) * turned**2
            step = m / (np.sqrt(v) + epsilon)
            for a in axes:
                step = along(bases[a], step, a)
            size = rate * np.sqrt(1 - beta_2**t) / (1 - beta_1**t)
            p = p - size * step
        for a in axes:
            averages[a] = beta_2 * averages[a] + (1 - beta_2) * products(g, a)
        if not t:
            bases = {a: np.linalg.eigh(averages[a])[1][:, ::-1] for a in axes}
        elif t % interval == 0:
            for a in axes:
                m = along(bases[a], m, a)
            for a in axes:
                order = np.argsort(-np.diag(bases[a].T @ averages[a] @ bases[a]))
                v = np.take(v, order, a)
                bases[a] = np.linalg.qr(averages[a] @ bases[a][:, order])[0]
            for a in axes:
                m = along(bases[a].T, m, a)
    return p


def shampoo(p, gradients, rate, momentum, epsilon):
    sums = [epsilon * np.eye(n) for n in p.shape]
    velocity = np.zeros_like(p)
    for g in gradients:
        step = g
        for a in range(p.ndim):
            sums[a] = sums[a] + products(g, a)
            values, vectors = np.linalg.eigh(sums[a])
            root = vectors * values ** (-0.5 / p.ndim) @ vectors.T
            step = along(root, step, a)
        velocity = momentum * velocity + step
        p = p - rate * velocity
    return p


def run(optimizer, p, gradients):
    params = {"p": jnp.asarray(p, jnp.float32)}
    state = optimizer.init(params)
    for g in gradients:
        grads = {"p": jnp.asarray(g, jnp.float32)}
        params, state = optimizer.update(grads, state, params)
    return np.asarray(params["p"]), state


@pytest.mark.parametrize("shape", [(5,), (4, 3), (2, 3, 4)])
def test_steps_of_soap_are_those_of_its_authors(shape):
    p, gradients = RNG.normal(size=shape), RNG.normal(size=(7, *shape))
    optimizer = SOAP(0.1, weight_decay=None, precondition_interval=2)
    ours, _ = run(optimizer, p, gradients)
    np.testing.assert_allclose(
        ours, soap(p, gradients, 0.1, 0.95, 0.95, 1e-8, 2), atol=2e-3
    )


@pytest.mark.parametrize("shape", [(5,), (4, 3), (2, 3, 4)])
def test_steps_of_shampoo_are_those_of_the_paper(shape):
    p, gradients = RNG.normal(size=shape), RNG.normal(size=(5, *shape))
    ours, _ = run(Shampoo(0.1, momentum=0.5, epsilon=1e-2), p, gradients)
    np.testing.assert_allclose(ours, shampoo(p, gradients, 0.1, 0.5, 1e-2), atol=1e-3)


def test_long_axes_are_left_out():
    p, gradients = RNG.normal(size=(4, 3)), RNG.normal(size=(2, 4, 3))
    for kind, slot in ((SOAP, "basis"), (Shampoo, "root")):
        _, state = run(kind(0.1, max_size=3), p, gradients)
        assert f"{slot}_1" in state["inner"]["p"]
        assert f"{slot}_0" not in state["inner"]["p"]


def test_roots_stay_between_two_computations():
    p, gradients = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 4, 3))
    _, early = run(Shampoo(0.1, precondition_interval=5), p, gradients[:1])
    _, late = run(Shampoo(0.1, precondition_interval=5), p, gradients)
    first, last = (state["inner"]["p"] for state in (early, late))
    np.testing.assert_array_equal(first["root_0"], last["root_0"])
    assert not np.allclose(first["sum_0"], last["sum_0"])


@pytest.mark.parametrize("name", ["soap", "shampoo"])
def test_models_train_by_name_and_files_go_on(name, tmp_path):
    x = RNG.normal(size=(32, 4)).astype(np.float32)
    y = x @ RNG.normal(size=(4, 2)).astype(np.float32)
    exburn.utils.set_random_seed(0)
    model = exburn.Sequential([exburn.Input((4,)), layers.Dense(2)])
    model.compile(name, "mse", learning_rate=0.1, seed=0)
    first = model.fit(x, y, epochs=5, verbose=0).history["loss"]
    assert first[-1] < first[1]
    model.save(tmp_path / "model.exburn")
    other = exburn.load_model(tmp_path / "model.exburn")
    again, whole = (m.fit(x, y, epochs=2, verbose=0) for m in (other, model))
    np.testing.assert_allclose(again.history["loss"], whole.history["loss"], rtol=1e-5)
    assert other.optimizer.get_config() == model.optimizer.get_config()


@pytest.mark.parametrize("kind", [SOAP, Shampoo])
def test_bad_arguments_and_eight_bits_are_refused(kind):
    for options in ({"precondition_interval": 0}, {"max_size": 0}, {"epsilon": -1}):
        with pytest.raises(ArgumentError, match=next(iter(options))):
            kind(**options)
    with pytest.raises(ArgumentError, match="8 bits"):
        kind(state_bits=8)
