"""SWAG, dropout and ensembles: samples of weights, beside passes by hand."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.callbacks import SWAG
from exburn.errors import ArgumentError, CallbackError, DataError, ShapeError
from exburn.insight.uncertainty import swag as swag_module
from exburn.insight.uncertainty.samples import SampledPredictor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(32, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
VALUES = X[:, :1] + 0.3 * RNG.normal(size=(32, 1)).astype(np.float32)


def build(
    seed=0, *, units=3, activation: Any = "softmax", loss="cross_entropy", rate=0.5
):
    model: Any = exburn.Sequential(
        [
            exburn.Input((4,)),
            layers.Dense(8, "relu"),
            layers.BatchNormalization(),
            layers.Dropout(rate),
            layers.Dense(units, activation),
        ]
    )
    model.compile("sgd", loss, seed=seed)
    model.fit(X, Y if units > 1 else VALUES, epochs=1, verbose=0)
    return model


@pytest.fixture(scope="module")
def model():
    return build()


@pytest.fixture(scope="module")
def regressor():
    return build(units=1, activation=None, loss="mse")


# ---------------------------------------------------------------------- dropout
def test_only_dropout_is_on(model):
    sure = model.uncertainty(method="dropout", samples=400, seed=1)
    before = [np.array(w) for w in model.get_weights()]
    prediction = sure.predict(X, batch_size=32)
    hidden = np.asarray(exburn.Model(model.inputs, model.layers[-2].input)(X))
    kernel, bias = model.get_weights()[-2:]
    masks = np.random.default_rng(0).integers(0, 2, (4000, *hidden.shape))
    z = (2 * hidden * masks) @ kernel + bias
    each = np.asarray(jax.nn.softmax(z))
    np.testing.assert_allclose(prediction.mean, each.mean(0), atol=0.06)
    np.testing.assert_allclose(prediction.spread, each.std(0), atol=0.06)
    assert prediction.spread.mean() == pytest.approx(each.std(0).mean(), rel=0.05)
    after = model.get_weights()
    assert all(np.array_equal(*pair) for pair in zip(before, after, strict=True))


def test_a_seed_gives_the_same_masks_and_another_gives_others(model):
    p = [
        model.uncertainty(method="dropout", samples=4, seed=seed).predict(X).mean
        for seed in (0, 0, 1)
    ]
    assert np.array_equal(p[0], p[1]) and not np.array_equal(p[0], p[2])
    assert not np.array_equal(p[0][0], model.predict(X, verbose=0)[0])
    sure = model.uncertainty(method="dropout", samples=4)
    alone = sure.predict(X[3:4], batch_size=1).mean
    np.testing.assert_allclose(alone, p[0][3:4], atol=1e-6)


def test_dropout_of_attention_and_of_recurrent_layers_is_on():
    inputs = exburn.Input((5, 4))
    attention = layers.MultiHeadAttention(2, 2, dropout=0.5)(inputs, inputs)
    cells = [layers.GRUCell(3, dropout=0.5), layers.GRUCell(3)]
    recurrent = [layers.LSTM(3, dropout=0.5)(inputs), layers.RNN(cells)(inputs)]
    for hidden in (layers.Flatten()(attention), *recurrent):
        plain: Any = exburn.Model(inputs, layers.Dense(2, "softmax")(hidden))
        sure = plain.uncertainty(method="dropout", samples=8)
        x = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32)
        assert sure.predict(x).spread.min() > 0


class Block(layers.Layer):
    """A layer with a rate of its own, whose parts drop and normalize."""

    def __init__(self, **options):
        super().__init__(**options)
        self.dropout = 0.5
        self.norm, self.drop = layers.BatchNormalization(), layers.Dropout(0.5)

    def call(self, inputs, training=False):
        return self.drop(self.norm(inputs, training=training), training=training)


def test_batch_statistics_stay_where_a_layer_has_a_rate():
    inputs = exburn.Input((4,))
    model: Any = exburn.Model(inputs, layers.Dense(2, "softmax")(Block()(inputs)))
    sure = model.uncertainty(method="dropout", samples=3000)
    alone, among = sure.predict(X[:1], batch_size=1), sure.predict(X, batch_size=32)
    np.testing.assert_allclose(alone.mean[0], among.mean[0], atol=0.05)


# ---------------------------------------------------------------------- ensembles
def test_an_ensemble_is_the_mean_of_its_members(model):
    members = [model, build(1), build(2)]
    sure = model.uncertainty(method="ensemble", members=members)
    each = np.array([member.predict(X, verbose=0) for member in members])
    prediction = sure.predict(X, batch_size=8)
    np.testing.assert_allclose(prediction.mean, each.mean(0), atol=1e-6)
    np.testing.assert_allclose(prediction.spread, each.std(0), atol=1e-6)


def test_a_sweep_gives_its_best_lanes(model):
    result = exburn.tuning.sweep(
        model, X, Y, over={"seed": range(3)}, epochs=1, verbose=0
    )
    sure = model.uncertainty(method="ensemble", members=result, top=2)
    each = [member.predict(X, verbose=0) for member in result.models(2)]
    np.testing.assert_allclose(sure.predict(X).mean, np.mean(each, 0), atol=1e-6)
    assert sure.samples == 2


def test_convolutions_run_one_after_another_and_give_the_same():
    def make(seed):
        stack = [layers.Conv2D(2, 3, activation="relu"), layers.Flatten()]
        cnn: Any = exburn.Sequential(
            [exburn.Input((5, 5, 1)), *stack, layers.Dense(2, "softmax")]
        )
        cnn.compile("sgd", "cross_entropy", seed=seed)
        cnn.predict(np.zeros((1, 5, 5, 1)), verbose=0)
        return cnn

    members = [make(0), make(1)]
    x = RNG.normal(size=(3, 5, 5, 1)).astype(np.float32)
    sure = members[0].uncertainty(method="ensemble", members=members)
    each = [member.predict(x, verbose=0) for member in members]
    np.testing.assert_allclose(sure.predict(x).mean, np.mean(each, 0), atol=1e-6)


def test_unlike_members_are_refused(model):
    with pytest.raises(ShapeError, match="member 1"):
        other = build(1, units=4)
        model.uncertainty(method="ensemble", members=[model, other])
    other = build(1)
    other.layers[0].activation = exburn.activations.tanh
    with pytest.raises(ShapeError, match="option of a layer"):
        model.uncertainty(method="ensemble", members=[model, other])
    for members, text in (([model], "two"), (model, "list"), (None, "list")):
        with pytest.raises(ArgumentError, match=text):
            model.uncertainty(method="ensemble", members=members)


# ---------------------------------------------------------------------- SWAG
def test_draws_have_the_moments_of_the_formula():
    mean, variance = [np.array([1.0, 2.0])], [np.array([0.5, 0.1])]
    away = [RNG.normal(size=(4, 2))]
    moments = jax.tree.map(lambda v: np.asarray(v, np.float32), (mean, variance, away))
    keys = jax.random.split(jax.random.key(0), 20_000)
    draws = np.asarray(jax.vmap(lambda k: swag_module._draw(k, *moments)[0])(keys))
    np.testing.assert_allclose(draws.mean(0), mean[0], atol=0.03)
    expected = np.diag(variance[0]) / 2 + away[0].T @ away[0] / (2 * 3)
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=0.05)


def test_samples_have_batch_statistics_of_their_own():
    model = build()
    collected = SWAG(0, learning_rate=0.1, rank=3)
    model.fit(X, Y, epochs=4, verbose=0, callbacks=[collected])
    model = model.clone()  # nothing was run with it yet
    model.compile("sgd", "cross_entropy", seed=0)
    before = [np.array(w) for w in model.get_weights()]
    sure = model.uncertainty(X, method="swag", collected=collected, samples=3)
    assert set(sure.weights) == {w.path for w in model.weights}
    one = model.clone()
    for weight in one.weights:
        weight.assign(sure.weights[weight.path][1])
    hidden = np.asarray(one.layers[0](X))
    name = "batch_normalization/moving_mean"
    np.testing.assert_allclose(sure.weights[name][1], hidden.mean(0), rtol=1e-4)
    assert np.ptp(sure.weights[name], 0).max() > 0
    each = []
    for number in range(3):
        for weight in one.weights:
            weight.assign(sure.weights[weight.path][number])
        each.append(one.predict(X, verbose=0))
    np.testing.assert_allclose(sure.predict(X).mean, np.mean(each, 0), atol=1e-6)
    after = model.get_weights()
    assert all(np.array_equal(*pair) for pair in zip(before, after, strict=True))


def test_epochs_train_a_copy(regressor):
    before = [np.array(w) for w in regressor.get_weights()]
    rate = float(regressor.optimizer.learning_rate)
    options = {"method": "swag", "epochs": 2, "learning_rate": 0.05, "samples": 4}
    sure = regressor.uncertainty(X, VALUES, **options)
    after = regressor.get_weights()
    assert all(np.array_equal(*pair) for pair in zip(before, after, strict=True))
    assert float(regressor.optimizer.learning_rate) == rate
    prediction = sure.predict(X)
    errors = np.mean((prediction.mean - VALUES) ** 2)
    assert 0 < sure.noise <= errors
    assert prediction.spread.min() >= np.sqrt(sure.noise)
    report = sure.report(X, VALUES)
    assert report.likelihood is not None and 0.6 < report.coverage <= 1


# ---------------------------------------------------------------------- of all
def test_files_give_the_same_and_know_their_model(model, tmp_path):
    members = [model, build(1)]
    for options in ({"method": "dropout"}, {"method": "ensemble", "members": members}):
        sure = model.uncertainty(**options)
        path = sure.save(tmp_path / "sure.safetensors")
        again = SampledPredictor.load(path).of(model)
        np.testing.assert_array_equal(again.predict(X).mean, sure.predict(X).mean)
        assert again.method == options["method"] and str(again) == str(sure)
        with pytest.raises(ArgumentError, match="not those"):
            again.of(members[1])
    assert sure.plot().axes[0].patches
    with pytest.raises(ArgumentError, match="same weights"):
        model.uncertainty(method="dropout").plot()


def test_streams_and_tables_are_rows(regressor):
    options = {"method": "dropout", "samples": 3}
    stream = iter([(X[:8], VALUES[:8]), (X[8:], VALUES[8:])])
    noise = regressor.uncertainty(X, VALUES, **options).noise
    streamed = regressor.uncertainty(stream, **options).noise
    assert 0 < streamed == pytest.approx(noise, rel=0.9)
    given = regressor.uncertainty(**options, noise=0.25)
    assert given.noise == 0.25
    assert given.predict(iter([X[:3], X[3:5]])).mean.shape == (5, 1)


BAD = [
    ({"method": "dropout", "samples": 1}, "samples"),
    ({"method": "dropout", "samples": 10**6}, "at most"),
    ({"method": "dropout", "noise": 1.0}, "classes"),
    ({"method": "dropout", "rank": 3}, "rank is not of"),
    ({"method": "swag"}, "collected"),
    ({"method": "swag", "epochs": 1}, "epochs"),
    ({"method": "swag", "epochs": 2, "learning_rate": -1}, "learning_rate"),
    ({"method": "swag", "epochs": 2, "rank": 1}, "rank"),
    ({"method": "swag", "collected": "swag"}, "callback"),
    ({"method": "swag", "collected": SWAG(0), "rank": 3}, "are of epochs"),
]


@pytest.mark.parametrize(("options", "text"), BAD)
def test_bad_options_are_refused(model, options, text):
    with pytest.raises(ArgumentError, match=text):
        model.uncertainty(X, Y, **options)


def test_what_cannot_be_known_is_refused(model, regressor):
    with pytest.raises(CallbackError, match="two are needed"):
        model.uncertainty(X, Y, method="swag", collected=SWAG(0))
    with pytest.raises(ArgumentError, match="noise of observations"):
        regressor.uncertainty(method="dropout")
    with pytest.raises(ArgumentError, match="no dropout"):
        build(rate=0.0).uncertainty(method="dropout")
    with pytest.raises(DataError, match="labels must be"):
        model.uncertainty(X, Y + 5, method="dropout")
    frozen = build()
    frozen.trainable = False
    with pytest.raises(ArgumentError, match="trains no weight"):
        frozen.uncertainty(X, Y, method="swag", epochs=2)
    with pytest.raises(DataError, match="rows of the training"):
        model.uncertainty(method="swag", epochs=2)
    collected = SWAG(0)
    build(units=4).fit(X, Y, epochs=2, verbose=0, callbacks=[collected])
    with pytest.raises(ArgumentError, match="another model"):
        model.uncertainty(X, Y, method="swag", collected=collected)
