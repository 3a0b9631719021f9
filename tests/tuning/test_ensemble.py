"""An ensemble: its mean and spread, and that it is a model like any other."""

import jax
import numpy as np
import pytest

import exburn
from exburn import Input, Model, Sequential, Serving, layers, losses, metrics
from exburn.errors import ArgumentError, NotBuiltError, ShapeError
from exburn.tuning.ensemble import Ensemble

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 4)).astype("float32")
Y = RNG.integers(0, 3, 40)


def member(seed, activation=None, units=3, loss="cross_entropy", **options):
    exburn.set_random_seed(seed)
    inside = [layers.Dense(8, "relu"), layers.Dropout(0.5)]
    model = Sequential(
        [Input((4,)), *inside, layers.Dense(units, activation)], name="same"
    )
    if loss is not None:
        model.compile("adam", loss, **options)
    return model


@pytest.fixture(scope="module")
def trained():
    models = [member(seed, metrics=["accuracy"]) for seed in range(3)]
    for model in models:
        model.fit(X, Y, epochs=2, verbose=0)
    return models


@pytest.fixture(scope="module")
def ensemble(trained):
    return Ensemble(trained)


@pytest.fixture(scope="module")
def each(trained):
    logits = np.stack([model.predict(X, verbose=0) for model in trained], 1)
    return np.asarray(jax.nn.softmax(logits))  # [rows, members, classes]


def test_the_mean_of_the_members_probabilities(ensemble, trained, each):
    np.testing.assert_allclose(
        ensemble.predict(X, verbose=0), each.mean(1), rtol=1e-5, atol=1e-7
    )
    assert ensemble.kinds == ("softmax",) and ensemble.output_shape == (None, 3)
    assert [m.name for m in trained] == ["same"] * 3  # the members are copies


def test_it_is_compiled_as_its_members_for_probabilities(ensemble, each):
    found = ensemble.evaluate(X, Y, verbose=0, return_dict=True)
    p = each.mean(1)
    expected = -np.log(p[np.arange(40), Y]).mean()
    assert found["loss"] == pytest.approx(expected, rel=1e-5)
    assert found["accuracy"] == pytest.approx((p.argmax(-1) == Y).mean())


def test_the_spread_of_the_members(ensemble, each):
    found = ensemble.uncertainty(X)
    p = each.mean(1)
    np.testing.assert_allclose(found.mean, p, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.variance, each.var(1), rtol=1e-4, atol=1e-8)
    votes = each.argmax(-1)  # [rows, members]
    apart = [np.mean(votes[i] != p[i].argmax()) for i in range(40)]
    np.testing.assert_allclose(found.disagreement, apart)
    entropy = -(p * np.log(p)).sum(-1)
    own = -(each * np.log(each)).sum(-1).mean(1)
    np.testing.assert_allclose(found.entropy, entropy, rtol=1e-5)
    np.testing.assert_allclose(found.information, entropy - own, rtol=1e-3, atol=1e-6)
    assert ensemble.calibration(X, Y, bins=5).counts.sum() == 40


def test_one_file_has_it_all(ensemble, tmp_path):
    ensemble.save(tmp_path / "committee.exburn")
    again = exburn.load_model(tmp_path / "committee.exburn")
    assert isinstance(again, Ensemble) and len(again.members) == 3
    np.testing.assert_array_equal(
        again.predict(X, verbose=0), ensemble.predict(X, verbose=0)
    )
    np.testing.assert_array_equal(
        again.uncertainty(X).variance, ensemble.uncertainty(X).variance
    )
    assert again.evaluate(X, Y, verbose=0) == ensemble.evaluate(X, Y, verbose=0)


def test_it_is_served_and_exported(ensemble, each, tmp_path):
    with Serving(ensemble) as serving:
        np.testing.assert_allclose(serving(X[:3]), each.mean(1)[:3], rtol=1e-5)
    ensemble.export(tmp_path / "committee.stablehlo")
    found = exburn.predict(tmp_path / "committee.stablehlo", X)
    np.testing.assert_allclose(found, each.mean(1), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("model", "kinds"),
    [
        (member(0, "softmax"), "probabilities"),
        (member(0, "sigmoid", 1, "binary_crossentropy"), "probabilities"),
        (member(0, None, 3, "cross_entropy"), "softmax"),
        (
            member(0, None, 3, losses.SparseCategoricalCrossentropy(from_logits=True)),
            "softmax",
        ),
        (member(0, None, 1, losses.BinaryCrossentropy(from_logits=True)), "sigmoid"),
        (member(0, None, 2, losses.BinaryCrossentropy(from_logits=True)), "sigmoid"),
        (member(0, None, 3, "sparse_categorical_crossentropy"), "probabilities"),
        (member(0, None, 1, "mse"), "values"),
        (member(0, None, 1, None), "values"),
    ],
)
def test_what_members_put_out_is_found(model, kinds):
    assert Ensemble([model]).kinds == (kinds,)


def test_regression_has_a_variance_and_no_classes():
    models = [member(seed, None, 2, "mse") for seed in range(2)]
    ensemble = Ensemble(models)
    each = np.stack([m.predict(X, verbose=0) for m in models], 1)
    found = ensemble.uncertainty(X)
    np.testing.assert_allclose(found.mean, each.mean(1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.variance, each.var(1), rtol=1e-4, atol=1e-7)
    assert found.disagreement is None
    with pytest.raises(ArgumentError, match="one output of probabilities"):
        ensemble.calibration(X, Y)


def test_a_class_against_the_rest_and_metrics_of_logits():
    loss = losses.BinaryCrossentropy(from_logits=True)
    auc = metrics.AUC(from_logits=True)
    models = [member(seed, None, 1, loss, metrics=[auc]) for seed in range(2)]
    ensemble = Ensemble(models)
    logits = np.stack([m.predict(X, verbose=0) for m in models], 1)
    p = 1 / (1 + np.exp(-logits.astype(float)))  # [rows, members, 1]
    found = ensemble.uncertainty(X)
    np.testing.assert_allclose(found.mean, p.mean(1), rtol=1e-5)
    apart = (p > 0.5) != (p.mean(1) > 0.5)[:, None]
    np.testing.assert_allclose(found.disagreement, apart.mean((1, 2)))
    y = (Y == 1).astype("float32")[:, None]
    mean = p.mean(1)
    expected = -np.mean(y * np.log(mean) + (1 - y) * np.log(1 - mean))
    logs = ensemble.evaluate(X, y, verbose=0, return_dict=True)
    assert logs["loss"] == pytest.approx(expected, rel=1e-4)
    positive, negative = mean[y == 1], mean[y == 0]
    area = np.mean(positive[:, None] > negative)
    assert logs["auc"] == pytest.approx(area, abs=0.02)


def test_several_outputs_and_members_of_other_sizes():
    def build(width):
        x = Input((4,))
        h = layers.Dense(width, "relu")(x)
        outputs = {"kind": layers.Dense(3)(h), "size": layers.Dense(1)(h)}
        model = Model(x, outputs)
        model.compile("adam", {"kind": "cross_entropy", "size": "mse"})
        return model

    models = [build(4), build(7)]
    ensemble = Ensemble(models)
    assert ensemble.kinds == ("softmax", "values")
    each = [m.predict(X, verbose=0) for m in models]
    found = ensemble.uncertainty(X)
    sizes = np.stack([o["size"] for o in each], 1)
    np.testing.assert_allclose(found["size"].mean, sizes.mean(1), rtol=1e-5, atol=1e-6)
    kinds = np.stack([jax.nn.softmax(o["kind"]) for o in each], 1)
    np.testing.assert_allclose(found["kind"].variance, kinds.var(1), atol=1e-6)
    targets = {"kind": Y, "size": np.zeros((40, 1), "float32")}
    logs = ensemble.evaluate(X, targets, verbose=0, return_dict=True)
    expected = (sizes.mean(1) ** 2).mean()
    assert logs["size_loss"] == pytest.approx(expected, rel=1e-4)


def test_members_whose_class_is_written_by_hand():
    class Twice(Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.out = layers.Dense(2)

        def call(self, inputs):
            return 2 * self.out(inputs)

    models = [Twice(), Twice()]
    each = [model(X) for model in models]
    found = Ensemble(models).predict(X, verbose=0)
    np.testing.assert_allclose(found, (each[0] + each[1]) / 2, rtol=1e-5, atol=1e-6)


def test_what_cannot_be_an_ensemble():
    model = member(0)
    with pytest.raises(ArgumentError, match="must be a list of models"):
        Ensemble([])
    with pytest.raises(ArgumentError, match="a member must be a model, received int"):
        Ensemble([model, 3])
    with pytest.raises(ArgumentError, match="outputs is one of"):
        Ensemble([model], outputs="logits")
    with pytest.raises(ArgumentError, match="1 outputs, 2 are described"):
        Ensemble([model], outputs=["softmax", "values"])
    with pytest.raises(NotBuiltError, match="has no weights yet"):
        Ensemble([Sequential([layers.Dense(2)])])
    with pytest.raises(ShapeError, match="inputs and outputs of the same shapes"):
        Ensemble([model, member(1, units=4)])
