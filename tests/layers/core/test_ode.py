"""Tests of ``exburn.layers.core.ode``."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.distribution.devices import on_devices
from tests.layers.check_layer import pure
from tests.layers.peer import data

import exburn
from exburn import layers as L
from exburn.errors import ArgumentError, MissingDependencyError

X = data(4, 3)


class Field(L.Layer):
    """``rate * y``, or ``rate * t * y``: with exact solutions."""

    def __init__(self, rate=-1.0, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate

    def build(self, *shapes):
        self.scale = self.add_weight((), exburn.initializers.Constant(self.rate))

    def call(self, y):
        return self.scale * y


class Timed(Field):
    def call(self, t, y):
        return self.scale * t * y


class Oscillator(L.Layer):
    def call(self, y):
        return jnp.stack([y[:, 1], -y[:, 0]], -1)


class TimedModel(exburn.Model):
    def call(self, t, y):
        return t * y


def make(**options):
    return L.ODE(L.Dense(3, "tanh"), **options)


CONTRACT = {
    "ODE": (make, (), X, {}),
    "ODE-save_at": (
        lambda **o: make(save_at=[0.0, 0.3], step_size=0.1, solver="heun", **o),
        (),
        X,
        {},
    ),
}

BAD_ARGUMENTS = [
    (lambda: L.ODE("relu"), "dynamics is a layer"),
    (lambda: L.ODE(TimedModel()), "a model whose call takes t and y"),
    (lambda: make(t0=1.0), "t0 and t1 must differ"),
    (lambda: make(t1=float("inf")), "t1"),
    (lambda: make(solver="leapfrog"), "solver"),
    (lambda: make(adjoint="forward"), "adjoint"),
    (lambda: make(rtol=-1.0), "rtol"),
    (lambda: make(rtol=0, atol=0), "one of rtol and atol"),
    (lambda: make(max_steps=0), "max_steps"),
    (lambda: make(step_size=0.0), "step_size"),
    (lambda: make(step_size=1e-4), "needs 10000 steps from t0 to t1"),
    (lambda: make(solver="euler"), "needs a step_size"),
    (lambda: make(solver="kvaerno5", step_size=0.1), "chooses its steps"),
    (lambda: make(save_at=[]), "save_at is a list of times"),
    (lambda: make(save_at=[0.5, 0.2]), "must go from t0 to t1"),
    (lambda: make(save_at=[0.5, 0.5, 0.7]), "must go from t0 to t1"),
    (lambda: make(t1=1.0, save_at=[0.5, 1.5]), "must go from t0 to t1"),
]

BAD_SHAPES = [
    (L.ODE(L.Dense(3)), X[0], "an input [batch, …] is needed"),
    (L.ODE(L.Dense(2)), X, "the dynamics must return the shape of y"),
]

WAYS = [
    {},
    {"solver": "dopri5"},
    {"solver": "dopri8", "adjoint": "direct", "max_steps": 64},
    {"solver": "kvaerno5"},
    {"solver": "heun", "step_size": 0.005},
    {"adjoint": "backsolve"},
]


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_solutions_and_gradients_are_the_exact_ones(options):
    layer = L.ODE(Field(), t1=2.0, rtol=1e-6, atol=1e-7, **options)
    layer.build((None, 3))

    def total(rate, x):
        return layer.stateless_call([rate], [], x)[0].sum()

    value, (slope, at_x) = jax.jit(jax.value_and_grad(total, (0, 1)))(-1.0, X)
    decay = np.exp(-2.0)
    np.testing.assert_allclose(value, (X * decay).sum(), atol=3e-5)
    np.testing.assert_allclose(slope, (X * decay * 2).sum(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(at_x, np.full(X.shape, decay), atol=1e-5)


def test_times_forward_and_backward():
    times = np.linspace(0, 6, 7)
    y = L.ODE(Oscillator(), save_at=times)(np.array([[1.0, 0.0]], "float32"))
    exact = np.stack([np.cos(times), -np.sin(times)], -1)
    np.testing.assert_allclose(y[0], exact, atol=1e-5)
    y = L.ODE(Oscillator(), save_at=times[::-1], t0=6.0)(exact[-1:].astype("float32"))
    np.testing.assert_allclose(y[0], exact[::-1], atol=1e-5)
    y = L.ODE(Timed(), t1=2.0, t0=1.0)(X)  # exp(-t² / 2)
    np.testing.assert_allclose(y, X * np.exp(-1.5), atol=1e-5)
    t, y = exburn.Input((1,)), exburn.Input((3,))
    model = exburn.Model([t, y], L.Lambda(lambda v: -v[0] * v[1])([t, y]))
    np.testing.assert_allclose(
        L.ODE(model, t1=2.0, t0=1.0)(X), X * np.exp(-1.5), atol=1e-5
    )


def test_gradients_are_those_of_finite_differences():
    layer = make(rtol=1e-7, atol=1e-7)
    layer.build((None, 3))
    weights = [v.numpy() for v in layer.trainable_variables]

    def loss(kernel):
        return (layer.stateless_call([kernel, *weights[1:]], [], X)[0] ** 2).sum()

    gradient = jax.jit(jax.grad(loss))(weights[0])
    step, loss = 1e-2, jax.jit(loss)
    for place in ((0, 0), (2, 1)):
        move = np.zeros_like(weights[0])
        move[place] = step
        difference = (loss(weights[0] + move) - loss(weights[0] - move)) / (2 * step)
        np.testing.assert_allclose(gradient[place], difference, rtol=2e-3, atol=1e-3)


def test_second_derivatives():
    layer = L.ODE(
        L.Lambda(lambda y: -(y**2)), adjoint="direct", max_steps=64, rtol=1e-7
    )
    x = np.array([[0.5, 1.0]], "float32")
    layer(x)

    def total(x):
        return layer(x).sum()

    at = jax.jit(jax.hessian(total))(x).reshape(2, 2)  # of x / (1 + x)
    np.testing.assert_allclose(at, np.diag(-2 / (1 + x[0]) ** 3), atol=1e-3)


def test_a_row_does_not_depend_on_the_others():
    layer = L.ODE(L.Lambda(lambda y: -(y**3)), t1=1.0, rtol=1e-3, atol=1e-3)
    company = np.concatenate([X, np.full((3, 3), 30, "float32")])
    alone = np.concatenate([layer(row[None]) for row in X])
    np.testing.assert_allclose(layer(company)[:4], alone, rtol=1e-6, atol=1e-6)


def test_rows_that_need_more_steps_are_nan_and_those_that_fill_up_do_not_count():
    layer = L.ODE(L.Lambda(lambda y: y**2), t1=1.0, save_at=[0.1, 1.0], max_steps=30)
    x = np.array([[0.5], [2.0], [-1.0]], "float32")  # the second one: no solution

    def total(x):
        return layer(x).sum((1, 2))

    with pytest.warns(UserWarning, match="1 of 3 rows, row 1 first, need more than"):
        layer(x)
    y, pull = jax.vjp(total, x)
    np.testing.assert_array_equal(np.isnan(y), [False, True, False])
    np.testing.assert_array_equal(
        np.isnan(pull(np.ones(3, "float32"))[0].ravel()), np.isnan(y)
    )
    call, leaves = pure(layer)
    y, _, _ = call(leaves, None, x, rows=np.array([True, False, True]))
    assert np.isfinite(y).all()


def test_dynamics_that_are_no_function_of_time_and_state_are_refused():
    for inner, text in (
        (L.Dropout(0.5), "draw random numbers"),
        (L.BatchNormalization(), "change their weights"),
        (L.ActivityRegularization(0.1), "add losses"),
    ):
        layer = L.ODE(exburn.Sequential([inner, L.Dense(3)]))
        if text != "add losses":
            assert layer(X).shape == X.shape
        with pytest.raises(ArgumentError, match=text):
            layer(X, training=True)


def test_dynamics_are_computed_in_float32_under_a_half_policy():
    exact = make(name="ode")
    exact(X)
    exburn.config.set_dtype_policy("mixed_bfloat16")
    try:
        half = make(name="ode")
        y = half(X)
    finally:
        exburn.config.set_dtype_policy("float32")
    assert y.dtype == "bfloat16" and half.dynamics.compute_dtype == "bfloat16"
    half.set_weights(exact.get_weights())
    x = jnp.asarray(X, "bfloat16").astype("float32")
    np.testing.assert_array_equal(half(X), exact(x).astype("bfloat16"))
    assert half.dynamics.compute_dtype == "bfloat16"


def spiral(rows=32, times=8):
    rng = np.random.default_rng(0)
    start = rng.normal(size=(rows, 2)).astype("float32")
    t = np.linspace(0, 2, times)
    turn = np.stack(
        [np.stack([np.cos(t), np.sin(t)], -1), np.stack([-np.sin(t), np.cos(t)], -1)],
        -1,
    )
    path = np.einsum("tij,bj->bti", turn * np.exp(-0.3 * t)[:, None, None], start)
    return start, path.astype("float32"), t.tolist()


def spiral_model(times):
    exburn.set_random_seed(0)
    inputs = exburn.Input((2,))
    layer = L.ODE(L.Dense(2, use_bias=False), save_at=times, rtol=1e-4, name="flow")
    return exburn.Model(inputs, layer(inputs))


def test_a_model_learns_a_spiral_and_its_file_is_the_model(tmp_path):
    start, path, times = spiral()
    model = spiral_model(times)
    model.compile(exburn.optimizers.Adam(0.2), "mse")
    model.fit(start, path, epochs=150, batch_size=32, verbose=0)
    assert model.evaluate(start, path, verbose=0) < 1e-4
    kernel = model.layers[-1].dynamics.kernel.numpy()
    np.testing.assert_allclose(kernel.T, [[-0.3, -1], [1, -0.3]], atol=0.05)
    outputs = model.predict(start[:7], batch_size=4, verbose=0)
    np.testing.assert_allclose(outputs, path[:7], atol=0.05)
    model.save(tmp_path / "m.exburn")
    again = exburn.saving.load_model(tmp_path / "m.exburn")
    np.testing.assert_array_equal(
        again.predict(start[:7], batch_size=4, verbose=0), outputs
    )
    assert again.layers[-1].get_config() == model.layers[-1].get_config()
    lines = []
    model.summary(print_fn=lambda *a, **k: lines.append(str(a[0])))
    assert "flow" in "".join(lines)


@on_devices
def test_devices_integrate_their_own_rows():
    start, path, times = spiral(16)
    results = []
    for distribution in (None, exburn.distribution.DataParallel()):
        exburn.distribution.set_distribution(distribution)
        try:
            model = spiral_model(times)
            model.compile(exburn.optimizers.SGD(0.1), "mse")
            fit = model.fit(
                start[:13], path[:13], epochs=2, batch_size=8, shuffle=False, verbose=0
            )
            results.append((fit.history["loss"], model.predict(start[:13], verbose=0)))
        finally:
            exburn.distribution.set_distribution(None)
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_without_diffrax_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "diffrax", None)
    with pytest.raises(MissingDependencyError) as caught:
        L.ODE(L.Dense(3))
    assert "exburn[ode]" in caught.value.hint
