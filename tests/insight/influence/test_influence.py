"""`model.influence`: gradients of rows, scores made of them, and what is refused."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.datasets import digits
from exburn.errors import ArgumentError, DataError, NotCompiledError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((20, 3)).astype(np.float32)
Y = RNG.standard_normal((20, 1)).astype(np.float32)


def linear(**options) -> Any:
    model: Any = exburn.Sequential([exburn.Input((3,)), layers.Dense(1, **options)])
    model.compile("sgd", "mse", seed=0)
    return model


def by_hand(model, x, y) -> np.ndarray:
    """Gradients ``[n, 4]`` of ``(x w + b − y)²`` by ``w`` and ``b``."""
    error = 2 * (x @ np.asarray(model.weights[0]) + np.asarray(model.weights[1]) - y)
    return np.concatenate([error * x, error], axis=1)


@pytest.fixture(scope="module")
def model():
    return linear(kernel_regularizer="l2")


def test_scores_are_products_of_gradients_by_hand(model):
    before = [np.array(w) for w in model.weights]
    rows = model.influence(X, Y, on=(X[:5], Y[:5]))
    gradients = by_hand(model, X, Y)
    bias_first = np.roll(gradients, 1, axis=1)
    np.testing.assert_allclose(rows.features, bias_first, rtol=1e-4, atol=1e-5)
    scores = gradients @ gradients[:5].T
    np.testing.assert_allclose(rows.scores, scores, rtol=1e-4, atol=1e-4)
    own = (gradients**2).sum(1)
    np.testing.assert_allclose(rows.self_influence, own, rtol=1e-4)
    best = np.argsort(-scores.mean(1))
    helpful, harmful = rows.top(3)
    assert helpful.tolist() == best[:3].tolist()
    assert harmful.tolist() == best[::-1][:3].tolist()
    assert rows.top(1, row=2).helpful[0] == np.argmax(scores[:, 2])
    assert sorted(rows.harmful()) == np.flatnonzero(scores.mean(1) < 0).tolist()
    assert rows.mislabelled(0.1).tolist() == np.argsort(-own)[:2].tolist()
    after = [np.array(w) for w in model.weights]
    assert all(np.array_equal(*pair) for pair in zip(before, after, strict=True))


def test_trak_solves_by_the_damped_second_moments(model):
    rows = model.influence(X, Y, on=(X[:5], Y[:5]), method="trak", damping=0.1)
    g = rows.features.astype(np.float64)
    moments = g.T @ g
    inverse = np.linalg.inv(moments + 0.1 * np.trace(moments) / 4 * np.eye(4))
    np.testing.assert_allclose(rows.scores, g @ inverse @ g[:5].T, rtol=1e-3, atol=1e-4)
    own = np.diag(g @ inverse @ g.T)
    np.testing.assert_allclose(rows.self_influence, own, rtol=1e-3)


def test_weights_of_rows_scale_their_gradients(model):
    plain = model.influence(X, Y)
    weighted = model.influence(X, Y, sample_weight=np.full(20, 2.0))
    np.testing.assert_allclose(weighted.features, 2 * plain.features, rtol=1e-5)


def test_streams_and_chunks_give_what_arrays_give(model):
    plain = model.influence(X, Y)
    chunked = model.influence(X, Y, batch_size=3)
    np.testing.assert_allclose(chunked.features, plain.features, rtol=1e-5, atol=1e-6)
    batches = [(X[:8], Y[:8]), (X[8:16], Y[8:16]), (X[16:], Y[16:])]
    streamed = model.influence(batches_of(batches))
    np.testing.assert_allclose(streamed.features, plain.features, rtol=1e-5, atol=1e-6)


def batches_of(batches):
    class Batches(exburn.utils.PyDataset):
        def __len__(self):
            return len(batches)

        def __getitem__(self, index):
            return batches[index]

    return Batches()


def test_batch_normalization_and_dropout_are_as_at_inference():
    model: Any = exburn.Sequential(
        [
            exburn.Input((3,)),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse", seed=0)
    model.fit(X, Y, epochs=1, verbose=0)
    one, all_rows = model.influence(X[3:4], Y[3:4]), model.influence(X, Y)
    np.testing.assert_allclose(
        one.self_influence[0], all_rows.self_influence[3], rtol=1e-4
    )
    kernel, bias = (np.asarray(w) for w in model.layers[-1].weights)
    mean, variance = (np.asarray(w) for w in model.layers[0].weights[2:])
    gamma, beta = (np.asarray(w) for w in model.layers[0].weights[:2])
    unit = (X - mean) / np.sqrt(variance + 1e-3)
    hidden = unit * gamma + beta
    error = 2 * (hidden @ kernel + bias - Y)  # [n, 1]
    through = error @ kernel.T
    parts = [error * hidden, error, through * unit, through]
    own = (np.concatenate(parts, axis=1) ** 2).sum(1)
    np.testing.assert_allclose(all_rows.self_influence, own, rtol=1e-3)


def test_projected_products_are_near_the_exact_ones():
    x = RNG.standard_normal((30, 40)).astype(np.float32)
    model: Any = exburn.Sequential([exburn.Input((40,)), layers.Dense(30)])
    model.compile("sgd", "mse", seed=0)
    y = RNG.standard_normal((30, 30)).astype(np.float32)
    exact = model.influence(x, y, on=(x, y), projection=10_000)
    near = model.influence(x, y, on=(x, y), projection=1000)
    assert exact.features.shape == (30, 1230) and near.features.shape == (30, 1000)
    np.testing.assert_allclose(near.self_influence, exact.self_influence, rtol=1e-4)
    norms = np.sqrt(np.outer(exact.self_influence, exact.self_influence))
    error = (near.scores - exact.scores) / norms
    assert 0.01 < error.std() < 0.06  # about 1 / sqrt(1000)
    again = model.influence(x, y, on=(x, y), projection=1000)
    assert np.array_equal(again.scores, near.scores)
    other = model.influence(x, y, on=(x, y), projection=1000, seed=1)
    assert not np.allclose(other.scores, near.scores)


def test_flipped_labels_of_digits_are_in_the_top_tenth():
    (x, y), _ = digits.load_data(0.2)
    x, wrong = (x / 16).astype(np.float32), y.copy()
    flipped = RNG.choice(len(x), len(x) // 20, replace=False)
    wrong[flipped] = (y[flipped] + RNG.integers(1, 10, len(flipped))) % 10
    model: Any = exburn.Sequential(
        [
            exburn.Input((8, 8)),
            layers.Flatten(),
            layers.Dense(64, "relu"),
            layers.Dense(10),
        ]
    )
    loss = exburn.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, seed=0)
    model.fit(x, wrong, epochs=10, verbose=0)
    for method in ("tracin", "trak"):
        rows = model.influence(x, wrong, method=method)
        assert np.isin(flipped, rows.mislabelled(0.1)).mean() >= 0.95, method


def test_scores_rank_rows_as_training_without_each_does():
    """Logistic regression, trained to its optimum with and without each row."""
    from scipy.stats import spearmanr
    from sklearn.datasets import make_classification
    from sklearn.linear_model import LogisticRegression

    shape: dict[str, Any] = {"n_samples": 200, "n_features": 10, "n_informative": 5}
    problem: Any = make_classification(
        **shape, flip_y=0.2, class_sep=0.7, random_state=0
    )
    data, target = problem
    data = ((data - data.mean(0)) / data.std(0)).astype(np.float32)
    x, y, x_test, y_test = data[:100], target[:100], data[100:200], target[100:200]

    def train(rows):
        return LogisticRegression(C=1.0, tol=1e-8, max_iter=5000).fit(x[rows], y[rows])

    def losses(fitted):
        margin = fitted.decision_function(x_test) * (2 * y_test - 1)
        return np.logaddexp(0, -margin)

    whole = train(np.arange(100))
    without = [train(np.delete(np.arange(100), row)) for row in range(100)]
    rise = np.mean([losses(each) - losses(whole) for each in without], axis=1)
    model: Any = exburn.Sequential([exburn.Input((10,)), layers.Dense(1)])
    model.compile("sgd", exburn.losses.BinaryCrossentropy(from_logits=True))
    model.set_weights([whole.coef_.T, whole.intercept_])
    for method, least in (("tracin", 0.8), ("trak", 0.9)):
        scores = model.influence(x, y, on=(x_test, y_test), method=method).scores
        correlation: Any = spearmanr(scores.mean(1), rise)[0]
        assert correlation > least, (method, correlation)
    slope = np.polyfit(scores.mean(1), rise, 1)[0]  # of the last, "trak"
    assert 0.7 < slope < 1.5


def test_several_inputs_and_outputs():
    a, b = exburn.Input((3,), name="a"), exburn.Input((2,), name="b")
    joined = layers.concatenate([a, b])
    model: Any = exburn.Model(
        [a, b], {"p": layers.Dense(1)(joined), "q": layers.Dense(2)(joined)}
    )
    model.compile("sgd", {"p": "mse", "q": "mse"}, seed=0)
    x = {"a": X, "b": X[:, :2]}
    y = {"p": Y, "q": np.concatenate([Y, Y], 1)}
    rows = model.influence(x, y, on=(x, y))
    assert rows.scores.shape == (20, 20)
    np.testing.assert_allclose(np.diag(rows.scores), rows.self_influence, rtol=1e-4)


def test_a_loss_that_compares_rows_is_warned_of():
    losses = {
        "plain": lambda y, p: exburn.ops.mean((y - p) ** 2),
        "spread": lambda y, p: exburn.ops.mean((p - exburn.ops.mean(p)) ** 2),
    }
    for name, loss in losses.items():
        model = linear()
        model.compile("sgd", loss)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            rows = model.influence(X, Y)
        assert any("compares the rows" in str(w.message) for w in found) == (
            name == "spread"
        )
        assert rows.self_influence.any() == (name == "plain")


class MinusMean(layers.Layer):
    def call(self, inputs):
        return inputs - exburn.ops.mean(inputs, axis=0)


def test_refusals_come_before_any_program(model):
    programs = model.trace_counts
    with pytest.raises(DataError, match=r"20|19"):
        model.influence(X, Y[:19])
    with pytest.raises(ArgumentError, match="on must be"):
        model.influence(X, Y, on=X)
    with pytest.raises(DataError, match="on needs targets"):
        model.influence(X, Y, on=(X[:2],))
    with pytest.raises(exburn.errors.ExBurnError, match="shape"):
        model.influence(X, Y, on=(X[:2, :2], Y[:2]))
    with pytest.raises(ArgumentError, match="tracin"):
        model.influence(X, Y, method="hessian")
    with pytest.raises(ArgumentError, match="damping"):
        model.influence(X, Y, method="trak", damping=0)
    with pytest.raises(ArgumentError, match="not of 'tracin'"):
        model.influence(X, Y, damping=0.5)
    with pytest.raises(ArgumentError, match="projection"):
        model.influence(X, Y, projection=0)
    assert model.trace_counts == programs

    with pytest.raises(NotCompiledError):
        exburn.Sequential([exburn.Input((3,)), layers.Dense(1)]).influence(X, Y)
    without_loss = exburn.Sequential([exburn.Input((3,)), layers.Dense(1)])
    without_loss.compile("sgd")
    with pytest.raises(ArgumentError, match="loss"):
        without_loss.influence(X, Y)
    frozen = linear()
    frozen.trainable = False
    frozen.compile("sgd", "mse")
    with pytest.raises(ArgumentError, match="no weight is trained"):
        frozen.influence(X, Y)
    mixing = exburn.Sequential([exburn.Input((3,)), MinusMean(), layers.Dense(1)])
    mixing.compile("sgd", "mse")
    with pytest.raises(ArgumentError, match="together"):
        mixing.influence(X, Y)
    fixed = exburn.Sequential([exburn.Input((3,), batch_size=4), layers.Dense(1)])
    fixed.compile("sgd", "mse")
    with pytest.raises(ArgumentError, match="batches of 4"):
        fixed.influence(X[:4], Y[:4])
