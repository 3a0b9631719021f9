"""Tests of ``exburn.losses.residual``: the loss of a step, its gradients, and fits."""

import numpy as np
import pytest

import exburn as keras
from exburn import errors, losses, ops
from exburn.losses import Residual

rng = np.random.default_rng(0)
X = rng.normal(size=(10, 2)).astype("float32")
Y = X[:, :1] - X[:, 1:]
W = np.repeat([1.0, 0.0], 5).astype("float32")


@keras.saving.register_keras_serializable("residual_tests")
def heat(model, x):
    """``u_t - u_xx`` of ``u(x, t)``."""

    def u(x):
        return model(x)[:, 0]

    slope = ops.grad(u)
    return slope(x)[:, 1] - ops.grad(lambda x: slope(x)[:, 0])(x)[:, 0]


def compiled(loss, **options):
    keras.utils.set_random_seed(0)
    hidden = keras.layers.Dense(4, "tanh", **options)
    model = keras.Sequential([keras.Input((2,)), hidden, keras.layers.Dense(1)])
    model.compile("sgd", loss)
    return model


def loss_by_hand(model, weight=1.0, rows=slice(None)):
    """With the derivatives as central differences, in float64."""
    first, bias, last, end = [np.float64(w) for w in model.get_weights()]

    def u(x, t):
        points = np.stack([x, t], -1)
        return (np.tanh(points @ first + bias) @ last + end)[:, 0]

    x, t = np.float64(X).T
    step = 1e-3
    u_t = (u(x, t + step) - u(x, t - step)) / (2 * step)
    u_xx = (u(x + step, t) - 2 * u(x, t) + u(x - step, t)) / step**2
    data = np.mean((u(x, t) - Y[:, 0])[rows] ** 2)
    return data + weight * np.mean((u_t - u_xx) ** 2)


def test_a_step_minimizes_the_squares_of_the_residual_and_the_data():
    loss = Residual(heat, weight=0.5)
    model = compiled(loss)
    wanted = loss_by_hand(model, 0.5)
    for size in (10, 4):  # the last batch is short
        total, data, residual = model.evaluate(X, Y, batch_size=size, verbose=0)
        assert total == pytest.approx(wanted, rel=1e-4)
        errors = model.predict(X, verbose=0) - Y
        assert data == pytest.approx(np.mean(errors**2), rel=1e-4)
        assert residual == pytest.approx(wanted - np.mean(errors**2), rel=1e-3)
    before = model.get_weights()
    history = model.fit(X, Y, batch_size=10, verbose=0)
    assert history.history["loss"] == pytest.approx([wanted], rel=1e-4)
    parts = [history.history[name][0] for name in ("data_loss", "residual_loss")]
    assert sum(parts) == pytest.approx(wanted, rel=1e-4) and min(parts) > 0
    moved = [b - a for a, b in zip(model.get_weights(), before, strict=True)]
    for i, value in enumerate(before):  # by the gradient, with SGD's rate
        for place in np.ndindex(value.shape):
            sides = []
            for step in (1e-2, -1e-2):
                weights = [w.copy() for w in before]
                weights[i][place] += step
                model.set_weights(weights)
                sides.append(loss_by_hand(model, 0.5))
            slope = (sides[0] - sides[1]) / 2e-2
            np.testing.assert_allclose(moved[i][place] / 0.01, slope, atol=1e-3)
    model.set_weights(before)
    loss.weight = 2.0  # holds from the next run on
    assert model.fit(X, Y, verbose=0).history["loss"] == pytest.approx(
        [loss_by_hand_of(before, 2.0)], rel=1e-4
    )


def loss_by_hand_of(weights, weight):
    model = compiled(Residual(heat))
    model.set_weights(weights)
    return loss_by_hand(model, weight)


def test_rows_without_data_count_for_the_equation():
    data = losses.MeanSquaredError(reduction="mean_with_sample_weight")
    model = compiled(Residual(heat, data))
    value, *_ = model.evaluate(X, Y, sample_weight=W, verbose=0)
    assert value == pytest.approx(loss_by_hand(model, rows=slice(5)), rel=1e-4)


def test_an_equation_alone_needs_no_targets():
    model = compiled(Residual(heat, None))
    alone = loss_by_hand(model) - loss_by_hand(model, 0.0)
    history = model.fit(X, batch_size=10, epochs=2, verbose=0).history["loss"]
    assert history[0] == pytest.approx(alone, rel=1e-4) and history[1] < history[0]
    with pytest.raises(errors.TargetError, match="there are targets"):
        model.fit(X, Y, verbose=0)


def test_what_layers_add_is_added_once():
    plain, penalized = (
        compiled(Residual(heat)),
        compiled(Residual(heat), activity_regularizer="l2"),
    )
    activity = keras.Sequential(penalized.layers[:1])(X)
    penalty = 0.01 * np.sum(np.square(activity)) / len(X)
    values = [m.evaluate(X, Y, verbose=0)[0] for m in (plain, penalized)]
    assert values[1] - values[0] == pytest.approx(penalty, rel=1e-3)


def test_files_name_the_function(tmp_path):
    model = compiled(Residual(heat, "mae", weight=0.25, name="equation"))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.loss.residual is heat and again.loss.name == "equation"
    values = [m.evaluate(X, Y, verbose=0) for m in (model, again)]
    assert values[0] == values[1]


def solve(residual, points, known, u, layers, epochs):
    """A network that fulfils an equation at points, and has values at known ones."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((2,)), *[keras.layers.Dense(20, "tanh") for _ in range(layers)]]
        + [keras.layers.Dense(1)]
    )
    rows, batch = len(points) + len(known), 200 * (layers - 1)
    rate = keras.optimizers.schedules.CosineDecay(5e-3, epochs * (rows // batch))
    data = losses.MeanSquaredError(reduction="mean_with_sample_weight")
    model.compile(keras.optimizers.Adam(rate), Residual(residual, data))
    model.fit(
        np.concatenate([points, known]).astype("float32"),
        np.concatenate([np.zeros(len(points)), u])[:, None].astype("float32"),
        sample_weight=np.repeat([0.0, 1.0], [len(points), len(known)]),
        batch_size=batch,
        epochs=epochs,
        verbose=0,
    )
    return lambda x, t: model.predict(np.stack([x, t], -1).reshape(-1, 2), verbose=0)


def error_of(solution, exact, x, t):
    x, t = np.meshgrid(x, t)
    wanted = exact(x, t).ravel()
    got = solution(x.astype("float32"), t.astype("float32"))[:, 0]
    return np.linalg.norm(got - wanted) / np.linalg.norm(wanted)


def conditions(generator, low, first):
    """Points at the start and at both ends, and the values there."""
    start = np.stack([generator.uniform(low, 1, 200), np.zeros(200)], 1)
    ends = np.stack([generator.choice([low, 1], 200), generator.uniform(size=200)], 1)
    return np.concatenate([start, ends]), np.r_[first(start[:, 0]), np.zeros(200)]


def test_the_heat_equation_is_solved():
    def residual(model, x):
        u = lambda x: model(x)[:, 0]  # noqa: E731
        u_xx = ops.grad(lambda x: ops.grad(u)(x)[:, 0])(x)[:, 0]
        return ops.grad(u)(x)[:, 1] - u_xx / np.pi**2

    generator = np.random.default_rng(0)
    known, u = conditions(generator, 0, lambda x: np.sin(np.pi * x))
    solution = solve(residual, generator.uniform(size=(1000, 2)), known, u, 2, 1200)
    sides = np.linspace(0, 1, 50)
    exact = lambda x, t: np.exp(-t) * np.sin(np.pi * x)  # noqa: E731
    assert error_of(solution, exact, sides, sides) < 0.015  # measured: 0.006


def test_burgers_equation_is_solved():
    viscosity = 0.05

    def residual(model, x):
        u = lambda x: model(x)[:, 0]  # noqa: E731
        value, slope = ops.value_and_grad(u)(x)
        u_xx = ops.grad(lambda x: ops.grad(u)(x)[:, 0])(x)[:, 0]
        return slope[:, 1] + value * slope[:, 0] - viscosity * u_xx

    def exact(x, t):  # by Cole and Hopf, with Gauss' and Hermite's quadrature
        nodes, weights = np.polynomial.hermite.hermgauss(100)
        places = x[..., None] - np.sqrt(4 * viscosity * t)[..., None] * nodes
        heights = np.exp(-np.cos(np.pi * places) / (2 * np.pi * viscosity))
        above = (-np.sin(np.pi * places) * heights) @ weights
        return above / (heights @ weights)

    generator = np.random.default_rng(0)
    points = np.stack([generator.uniform(-1, 1, 2000), generator.uniform(size=2000)], 1)
    known, u = conditions(generator, -1, lambda x: -np.sin(np.pi * x))
    solution = solve(residual, points, known, u, 3, 800)
    x, t = np.linspace(-1, 1, 41), np.linspace(0.05, 1, 20)
    assert error_of(solution, exact, x, t) < 0.02  # measured: 0.006


def returned(value):
    model = compiled(Residual(lambda model, x: value(model(x))))
    return lambda: model.fit(X, Y, verbose=0)


REFUSALS = [
    (lambda: Residual("heat"), errors.ArgumentError, "function of"),
    (lambda: Residual(heat, weight=-1), errors.ArgumentError, "weight"),
    (lambda: Residual(heat, losses.DPO()), errors.ArgumentError, "data_loss"),
    (lambda: Residual(heat, Residual(heat)), errors.ArgumentError, "data_loss"),
    (lambda: compiled([Residual(heat)]), errors.ArgumentError, "only loss"),
    (
        lambda: compiled("mse").compile("sgd", Residual(heat), accumulate="tokens"),
        errors.ArgumentError,
        "tokens of targets",
    ),
    (lambda: returned(lambda u: None)(), errors.ShapeError, "received none"),
    (lambda: returned(lambda u: 1j * u)(), errors.DTypeError, "complex64"),
    (lambda: compiled(Residual(heat)).fit(X, verbose=0), errors.DataError, "no y"),
]
