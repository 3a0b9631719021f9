"""Complex weights: each optimizer goes down, as it does by their two real parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tests.optimizers.test_every_optimizer import ALL

import exburn
from exburn import optimizers

GOAL = 1 + 2j
OPTIONS = {
    "clipnorm": lambda: optimizers.SGD(0.05, clipnorm=3.0),
    "clipvalue": lambda: optimizers.Adam(0.1, clipvalue=0.5),
    "global_clipnorm": lambda: optimizers.SGD(0.05, global_clipnorm=5.0),
    "decay": lambda: optimizers.SGD(0.05, weight_decay=1e-3),
    "ema": lambda: optimizers.Adam(0.1, use_ema=True, ema_momentum=0.5),
    "mean": lambda: optimizers.SGD(0.05, gradient_accumulation_steps=2),
    "lbfgs": lambda: optimizers.LBFGS(),
}


def distance(params):
    each = [jnp.sum(jnp.abs(leaf - GOAL) ** 2) for leaf in jax.tree.leaves(params)]
    return sum(each)


def begin():
    key = jax.random.key(0)
    shapes = {"dense/kernel": (3, 2), "dense/bias": (2,), "scale": ()}
    return {
        name: 0.3 * jax.random.normal(key, shape, "complex64")
        for name, shape in shapes.items()
    }


def as_complex(parts):
    return {name: part["x"] + 1j * part["y"] for name, part in parts.items()}


def train(optimizer, params, loss, steps=60):
    state = optimizer.init(params)
    search = {"value_fn": loss} if optimizer.searches else {}

    @jax.jit
    def step(params, state):
        scaled = jax.grad(lambda p: optimizer.scale_loss(loss(p), state))
        return optimizer.update(scaled(params), state, params, **search)

    for _ in range(steps):
        params, state = step(params, state)
    return optimizer.final_params(state, params)


@ALL
def test_every_optimizer_goes_down_as_by_the_real_parts(make):
    trained = train(make(), begin(), distance)
    assert distance(trained) < 0.75 * distance(begin())
    if isinstance(make(), optimizers.MultiOptimizer):
        return  # which chooses by paths, and the parts have others
    parts = {
        name: {"x": value.real, "y": value.imag} for name, value in begin().items()
    }
    parts = train(make(), parts, lambda p: distance(as_complex(p)))
    for name, value in as_complex(parts).items():
        np.testing.assert_allclose(trained[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", OPTIONS.values(), ids=OPTIONS)
def test_options_that_change_gradients_hold_for_complex_weights(make):
    trained = train(make(), begin(), distance, steps=120)
    assert all(value.dtype == "complex64" for value in trained.values())
    assert distance(trained) < 0.1


def test_a_norm_is_that_of_the_complex_gradient():
    optimizer = optimizers.SGD(1.0, clipnorm=1.0)
    params = {"w": jnp.zeros(1, "complex64")}
    (grads,) = jax.tree.leaves(jax.grad(distance)(params))
    new, _ = optimizer.update({"w": grads}, optimizer.init(params), params)
    np.testing.assert_allclose(new["w"], [GOAL / abs(GOAL)], rtol=1e-6)


def test_what_decays_is_chosen_by_the_weights_names():
    optimizer = optimizers.SGD(1.0, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["^bias$"])
    params = {"a/kernel": jnp.ones(1, "complex64"), "a/bias": jnp.ones(1, "complex64")}
    grads = jax.tree.map(jnp.zeros_like, params)
    new, _ = optimizer.update(grads, optimizer.init(params), params)
    assert new["a/kernel"].tolist() == [0.5] and new["a/bias"].tolist() == [1.0]


def test_variables_are_updated_in_place():
    weight = nnx.Param(jnp.zeros((), "complex64"))
    optimizer = optimizers.SGD(0.05)
    for _ in range(100):
        grads = jax.grad(lambda w: jnp.abs(w - GOAL) ** 2)(weight.get_value())
        optimizer.apply([grads], [weight])
    np.testing.assert_allclose(weight.get_value(), GOAL, rtol=1e-3)


class Own(optimizers.Optimizer):
    """A rule as Keras' classes write it, which squares the gradient."""

    def build(self, variables):
        super().build(variables)
        self.squares = [self.add_variable_from_reference(v, "v") for v in variables]

    def update_step(self, gradient, variable, learning_rate):
        square = self.squares[self._get_variable_index(variable)]
        square.assign(0.9 * square + 0.1 * gradient * gradient)
        variable.assign_sub(learning_rate * gradient / (jnp.sqrt(square) + 1e-3))


@exburn.register
class Mix(exburn.layers.Layer):
    """Rows mixed by complex weights; the distance from the goal is put out."""

    def build(self, shape):
        self.w = self.add_weight((shape[-1],), "zeros", dtype="complex64", name="w")

    def call(self, x):
        error = self.w * exburn.ops.cast(x, "complex64") - GOAL
        return exburn.ops.real(error) ** 2 + exburn.ops.imag(error) ** 2


X, Y = np.ones((16, 2), "float32"), np.zeros((16, 2), "float32")


@pytest.mark.parametrize(
    "make",
    [lambda: optimizers.SGD(0.05), lambda: optimizers.Muon(0.1), lambda: Own(0.05)],
    ids=["sgd", "muon", "own"],
)
def test_fit_goes_down(make):
    model = exburn.Sequential([exburn.Input((2,)), Mix()])
    model.compile(make(), "mae")
    losses = model.fit(X, Y, batch_size=4, epochs=25, verbose=0).history["loss"]
    assert losses[-1] < 0.1 * losses[0] and np.isfinite(losses).all()


class Product(exburn.layers.Layer):
    """Complex numbers, as pairs of real ones, times a matrix of complex weights."""

    def build(self, shape):
        options = {"dtype": "complex64", "regularizer": "l2", "name": "w"}
        self.w = self.add_weight((shape[-2], 2), "ones", **options)

    def call(self, x):
        return exburn.ops.view_as_real(exburn.ops.view_as_complex(x) @ self.w)


@pytest.mark.filterwarnings("ignore::exburn.errors.ConstantLossWarning")
@pytest.mark.parametrize(
    "make", [lambda: optimizers.SGD(0.3), lambda: optimizers.Adam(0.05)]
)
def test_least_squares_of_complex_numbers_are_found(make):
    """``mean |xw - y|² / 2 + 0.01 |w|²`` is least where its gradient is 0."""
    x, y = np.random.default_rng(0).normal(size=(2, 32, 2, 2)).astype("float32")
    a, b = x @ [1, 1j], y @ [1, 1j]  # [rows, 2], [rows, 2]
    wanted = np.linalg.solve(
        a.conj().T @ a / (4 * len(a)) + 0.01 * np.eye(2), a.conj().T @ b / (4 * len(a))
    )
    model = exburn.Sequential([exburn.Input((2, 2)), Product()])
    model.compile(make(), "mse")
    model.fit(x, y, batch_size=32, epochs=200, verbose=0)
    np.testing.assert_allclose(model.weights[0].numpy(), wanted, atol=1e-3)
    with pytest.raises(exburn.errors.DTypeError, match="complex64"):
        exburn.check_gradients(model, (x, y))


def test_a_training_goes_on_from_a_file(tmp_path):
    def fit(model, begin, end):
        options = {"initial_epoch": begin, "epochs": end, "verbose": 0}
        return model.fit(X, Y, batch_size=4, **options).history["loss"]

    whole = exburn.Sequential([exburn.Input((2,)), Mix()])
    whole.compile(optimizers.Adam(0.05), "mae", seed=0)
    first = whole.clone()
    first.compile(optimizers.Adam(0.05), "mae", seed=0)
    losses = fit(whole, 0, 4)
    assert fit(first, 0, 2) == losses[:2]
    first.save(tmp_path / "model.exburn")
    second = exburn.load_model(tmp_path / "model.exburn")
    assert fit(second, 2, 4) == losses[2:]
