"""Curvature, beside dense Hessians that JAX makes of the same loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from tests.distribution.devices import on_devices

import exburn
from exburn import layers, losses
from exburn.applications import GPT2
from exburn.distribution import FSDP, DataParallel, set_distribution
from exburn.errors import (
    ArgumentError,
    CallbackError,
    DataError,
    ModelFormatError,
    ShapeError,
)
from exburn.insight.curvature import (
    Curvature,
    lanczos_quadrature,
    largest_eigenpairs,
)

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(22, 5)), RANDOM.normal(size=(22, 2))


def network():
    """104 parameters; what is drawn in training and penalties are in it."""
    inputs = exburn.Input((5,))
    h = layers.Dense(12, "tanh", kernel_regularizer=exburn.regularizers.L2(0.1))(inputs)
    h = layers.Dropout(0.5)(layers.BatchNormalization()(h))
    model = exburn.Model(inputs, layers.Dense(2)(h))
    model.compile("adam", "mse", seed=0)
    return model


def dense_hessian(model, x=X, y=Y, weight=None):
    """That of the loss as this file writes it."""
    names = list(model.curvature(x, y, batch_size=8)._operator._params)
    values = {v.path: v for v in model.trainable_variables}
    params = {name: jnp.asarray(values[name].numpy()) for name in names}
    flat, back = ravel_pytree(list(params.values()))
    others = [v.value for v in model.non_trainable_variables]
    order = [names.index(v.path) for v in model.trainable_variables]

    def loss(flat):
        parts = back(flat)
        trained = [parts[n] for n in order]
        outputs, _ = model.stateless_call(trained, others, jnp.float32(x))
        errors = jnp.mean((outputs - jnp.float32(y)) ** 2, axis=-1)
        if weight is not None:
            errors = errors * weight
        kernel = parts[names.index("dense/kernel")]
        return jnp.mean(errors) + 0.1 * jnp.sum(kernel**2)

    with jax.default_matmul_precision("highest"):
        return np.asarray(jax.hessian(loss)(flat), np.float64), loss(flat)


@pytest.fixture(scope="module")
def compared():
    model = network()
    before = [w.tobytes() for w in model.get_weights()]
    curvature = model.curvature(X, Y, batch_size=8)
    assert [w.tobytes() for w in model.get_weights()] == before
    return model, curvature, *dense_hessian(model)


def test_products_and_eigenpairs_are_those_of_the_dense_hessian(compared):
    model, curvature, dense, loss = compared
    assert curvature.parameters == len(dense) == 122 and curvature.rows == 22
    assert curvature.loss == pytest.approx(float(loss), rel=1e-5)
    values, vectors = curvature.top(4, vectors=True)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(dense)[::-1][:4], rtol=1e-4)
    scale = values[0]
    for value, vector in zip(values, vectors, strict=True):
        flat = curvature._operator.flatten(vector)
        assert np.linalg.norm(dense @ flat - value * flat) < 1e-4 * scale
        product = curvature._operator.flatten(curvature.product(vector))
        np.testing.assert_allclose(product, dense @ flat, atol=1e-4 * scale)


def test_the_trace_is_within_its_error(compared):
    _, curvature, dense, _ = compared
    value, error = curvature.trace(64)
    assert 0 < error < 0.1 * value and abs(value - np.trace(dense)) < 4 * error


def test_training_afterwards_changes_nothing_of_it():
    model = network()
    curvature = model.curvature(X, Y, batch_size=8)
    first = curvature.top(1)
    model.fit(X, Y, epochs=2, verbose=0)
    np.testing.assert_allclose(curvature.top(1), first, rtol=1e-6)
    assert abs(model.curvature(X, Y, batch_size=8).top(1)[0] / first[0] - 1) > 1e-5


@on_devices
@pytest.mark.parametrize("divided", [False, True])
def test_eight_devices_find_what_one_does(divided):
    alone = network()
    expected = alone.curvature(X, Y, batch_size=16)
    set_distribution(FSDP(min_size=1) if divided else DataParallel())
    try:
        model = network()
        model.set_weights(alone.get_weights())
        curvature = model.curvature(X, Y, batch_size=16)
        np.testing.assert_allclose(curvature.top(2), expected.top(2), rtol=1e-5)
        np.testing.assert_allclose(curvature.trace(4), expected.trace(4), rtol=1e-5)
    finally:
        set_distribution(None)


def test_weights_of_rows_count():
    model, weight = network(), np.float32(np.arange(22) % 3)
    curvature = model.curvature(X, Y, sample_weight=weight, batch_size=8)
    dense, _ = dense_hessian(model, weight=weight)
    largest = np.linalg.eigvalsh(dense)[-1]
    np.testing.assert_allclose(curvature.top(1), [largest], rtol=1e-4)


def test_a_multiple_eigenvalue_counts_as_often_as_it_is_there():
    model = exburn.Sequential([exburn.Input((40,)), layers.Dense(3)])
    model.compile("sgd", "mse")
    x = RANDOM.normal(size=(64, 40))
    values = model.curvature(x, np.zeros((64, 3))).top(6)
    both = np.c_[x, np.ones(64)]
    single = np.linalg.eigvalsh(both.T @ both / 64 * 2 / 3)[::-1]
    np.testing.assert_allclose(values, np.repeat(single, 3)[:6], rtol=1e-4)


def test_a_hessian_whose_eigenvalues_are_all_negative():
    matrix = -np.diag(np.arange(1.0, 101.0))
    draws = np.random.default_rng(0)
    values, _ = largest_eigenpairs(lambda v: matrix @ v, 100, 2, draws)
    np.testing.assert_allclose(values, [-1, -2], atol=1e-3)


def test_a_loss_without_curvature_has_eigenvalues_of_0():
    model = exburn.Sequential([exburn.Input((80,)), layers.Dense(1)])
    model.compile("sgd", "mae")
    x = RANDOM.normal(size=(30, 80))
    values, vectors = model.curvature(x, x[:, :1]).top(2, vectors=True)
    assert values.tolist() == [0, 0]
    assert sum((v**2).sum() for v in vectors[0].values()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("rank", [1, 2])
def test_more_eigenvalues_than_the_rank(rank):
    matrix = np.diag(np.r_[np.arange(rank, 0.0, -1), np.zeros(100 - rank)])
    draws = np.random.default_rng(0)
    values, vectors = largest_eigenpairs(lambda v: matrix @ v, 100, 5, draws)
    expected = [*range(rank, 0, -1), *[0] * (5 - rank)]
    np.testing.assert_allclose(values, expected, atol=1e-5)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(5), atol=1e-6)


def test_a_file_has_the_numbers_and_no_model(compared, tmp_path):
    curvature = compared[1]
    curvature.top(2), curvature.trace(4)
    again = Curvature.load(curvature.save(tmp_path / "c"))
    assert str(again) == str(curvature) and "eigenvalue 2" in str(again)
    assert again.plot().axes[0].lines[0].get_ydata().tolist() == list(again.eigenvalues)
    with pytest.raises(ArgumentError, match="was loaded"):
        again.top(1)
    curvature.rows = -1
    with pytest.raises(ModelFormatError, match="no curvature"):
        Curvature.load(curvature.save(tmp_path / "d"))
    curvature.rows = 22


def test_what_cannot_be_is_refused_by_name(compared):
    model, curvature = compared[:2]
    with pytest.raises(ArgumentError, match="k is 123"):
        curvature.top(123)
    with pytest.raises(ArgumentError, match="each trained weight"):
        curvature.product({"kernel": X})
    with pytest.raises(DataError, match="must be arrays"):
        model.curvature(iter([(X, Y)]))
    frozen = exburn.Sequential([exburn.Input((5,)), layers.Dense(2, trainable=False)])
    frozen.compile("sgd", "mse")
    with pytest.raises(ArgumentError, match="no weight is trained"):
        frozen.curvature(X, Y)


def test_the_density_is_that_of_the_dense_hessian(compared, tmp_path):
    _, curvature, dense, _ = compared
    values = np.linalg.eigvalsh(dense)
    points, density = curvature.density(40, samples=12, points=400)
    assert np.trapezoid(density, points) == pytest.approx(1, abs=0.01)
    width = (values[-1] - values[0]) / 50
    bells = np.exp(-0.5 * ((points[:, None] - values) / width) ** 2)
    exact = bells.mean(1) / (width * np.sqrt(2 * np.pi))
    assert np.abs(density - exact).sum() / exact.sum() < 0.25
    mean = np.trapezoid(points * density, points)
    assert mean == pytest.approx(np.trace(dense) / 122, rel=0.1)
    curvature.save(tmp_path / "one")
    other = Curvature.load(tmp_path / "one")
    np.testing.assert_array_equal(other.spectrum, curvature.spectrum)
    assert other.matrix == "hessian"
    axes = curvature.plot().axes[0]
    assert axes.get_xlabel() == "eigenvalue"
    with pytest.raises(ArgumentError, match="steps"):
        curvature.density(0)


def test_a_quadrature_ends_where_a_vector_sees_no_more():
    matrix = np.diag([2.0, 2.0, -1.0, 7.0])
    values, shares = lanczos_quadrature(lambda v: matrix @ v, np.array([3, 4, 0, 0]), 4)
    assert values.tolist() == [2.0] and shares.tolist() == [1.0]
    start = np.array([1.0, 2.0, 2.0, 0.0])
    values, shares = lanczos_quadrature(lambda v: matrix @ v, start, 9)
    np.testing.assert_allclose(values, [-1, 2], atol=1e-12)
    np.testing.assert_allclose(shares, [4 / 9, 5 / 9])
    none, _ = lanczos_quadrature(lambda v: 0 * v, start, 3)
    assert none.tolist() == [0.0]


def classifier(**options):
    inputs = exburn.Input((5,))
    h = layers.Dense(4, "tanh", kernel_regularizer=exburn.regularizers.L2(0.1))(inputs)
    model = exburn.Model(inputs, layers.Dense(3)(h))
    loss = exburn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", options.pop("loss", loss), seed=0)
    return model


def test_a_gauss_newton_matrix_is_that_of_outputs_that_are_linear():
    model, classes = classifier(), np.arange(22) % 3
    curvature = model.curvature(X, classes, matrix="gauss_newton", batch_size=8)
    params = {v.path: jnp.asarray(v.numpy()) for v in model.trainable_variables}
    names = list(curvature._operator._params)
    flat, back = ravel_pytree([params[n] for n in names])
    order = [names.index(v.path) for v in model.trainable_variables]

    def outputs(flat):
        parts = [back(flat)[n] for n in order]
        return model.stateless_call(parts, [], jnp.float32(X))[0]

    def loss(z):
        return -jnp.mean(jax.nn.log_softmax(z)[np.arange(22), classes])

    with jax.default_matmul_precision("highest"):
        z, slopes = outputs(flat), jax.jacobian(outputs)(flat).reshape(66, -1)
        dense = slopes.T @ jax.hessian(loss)(z).reshape(66, 66) @ slopes
    assert curvature.loss == pytest.approx(float(loss(z)), rel=1e-5)
    vector = RANDOM.normal(size=len(flat))
    product = curvature._operator.apply(vector)
    np.testing.assert_allclose(product, dense @ vector, rtol=1e-3, atol=1e-5)
    assert curvature.density(40).points[0] > -0.1 * curvature.top(1)[0]
    assert "no negative eigenvalue" in curvature.text()


def test_a_matrix_that_is_none_is_refused():
    with pytest.raises(ArgumentError, match="hessian, gauss_newton"):
        network().curvature(X, Y, matrix="fisher")


@jax.custom_vjp
def one_way(x):
    return x * x


one_way.defvjp(lambda x: (x * x, x), lambda x, slope: (2 * x * slope,))


def test_a_layer_without_derivatives_in_forward_mode_is_refused():
    model = exburn.Sequential([exburn.Input((5,)), layers.Dense(2)])
    model.add(layers.Lambda(one_way))
    model.compile("sgd", "mse")
    with pytest.raises(ArgumentError, match="no derivatives in forward mode"):
        model.curvature(X, Y, matrix="gauss_newton")


def test_products_of_a_transformer_are_differences_of_gradients():
    tokens = RANDOM.integers(1, 20, (6, 5))
    targets, found = np.roll(tokens, -1, 1), {}
    for policy in ("float32", "mixed_bfloat16"):
        model = GPT2(20, layers=1, width=8, heads=2, positions=5, dtype=policy)
        model.compile("sgd", losses.SparseCategoricalCrossentropy(from_logits=True))
        draws = np.random.default_rng(1)
        weights = [draws.normal(0, 0.5, w.shape) for w in model.get_weights()]
        model.set_weights(weights)
        found[policy] = model, model.curvature(tokens, targets, batch_size=4)
    model, curvature = found["float32"]
    top, (vector,) = curvature.top(1, vectors=True)
    product, gradients = curvature.product(vector), []
    for step in (1e-3, -1e-3):
        for variable in model.trainable_variables:
            variable.assign_add(step * vector[variable.path])
        moved = model.curvature(tokens, targets)._operator.loss_and_gradient()[1]
        gradients.append(moved)
        for variable in model.trainable_variables:
            variable.assign_sub(step * vector[variable.path])
    differences = (gradients[0] - gradients[1]) / 2e-3
    flat = np.concatenate([part.ravel() for part in product.values()])
    np.testing.assert_allclose(flat, differences, atol=5e-3 * np.abs(flat).max())
    rough = found["mixed_bfloat16"][1].top(1)
    np.testing.assert_allclose(rough, top, rtol=0.05)


def test_sharpness_is_logged_along_training():
    model = classifier()
    classes = np.arange(22) % 3
    watch = exburn.callbacks.Sharpness(X, classes, every=2)
    history = model.fit(X, classes, epochs=4, verbose=0, callbacks=[watch])
    assert history.epochs_of("sharpness") == [1, 3]
    last = model.curvature(X, classes).top(1)[0]
    assert history.history["sharpness"][-1] == pytest.approx(last, rel=1e-3)
    plain = classifier().fit(X, classes, epochs=4, verbose=0)
    assert history.history["loss"] == plain.history["loss"]
    epochs = []
    narrow = [exburn.callbacks.Sharpness(X[:, :3], classes)]
    narrow.append(exburn.callbacks.LambdaCallback(on_epoch_begin=epochs.append))
    with pytest.raises(ShapeError):
        classifier().fit(X, classes, verbose=0, callbacks=narrow)
    assert not epochs
    with pytest.raises(CallbackError, match="every"):
        exburn.callbacks.Sharpness(X, classes, every="step")
