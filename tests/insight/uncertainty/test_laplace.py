"""Laplace's approximation of the last layer, beside laplace-torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError, DataError, ModelFormatError
from exburn.insight.uncertainty import laplace as laplace_module
from exburn.insight.uncertainty import laplace_posterior as posterior_module
from exburn.insight.uncertainty.laplace import LaplacePredictor
from exburn.insight.uncertainty.laplace_posterior import (
    STRUCTURES,
    LikelihoodCurvature,
    fit_posterior,
    output_variance,
)

JUDGE = np.load(Path(__file__).parents[1] / "recorded" / "last_layer.npz")
NEW = JUDGE["x_new"].astype(np.float32)
X = JUDGE["x"].astype(np.float32)
LABELS, VALUES = JUDGE["classification/y"], JUDGE["regression/y"]
LOGITS = exburn.losses.SparseCategoricalCrossentropy(from_logits=True)


def network(last, activation, loss, dtype=None) -> Any:
    """The network of the judge, whose last row of weights is the bias."""
    model: Any = exburn.Sequential(
        [
            exburn.Input((4,)),
            layers.Dense(5, "tanh", use_bias=False, dtype=dtype),
            layers.Dense(last.shape[1], activation, dtype=dtype),
        ]
    )
    model.compile("sgd", loss)
    model.set_weights([JUDGE["first"], last[:-1], last[-1]])
    return model


@pytest.fixture(scope="module")
def classifier():
    return network(JUDGE["classification/last"], "softmax", "cross_entropy")


@pytest.fixture(scope="module")
def regressor():
    return network(JUDGE["regression/last"], None, "mse")


@pytest.mark.parametrize("structure", STRUCTURES)
def test_classes_are_those_of_laplace_torch(classifier, structure):
    options = {"method": "laplace", "structure": structure}
    sure = classifier.uncertainty(X, LABELS, prior_precision=2.0, **options)
    place = f"classification/{structure}"
    prediction = sure.predict(NEW, batch_size=4)
    np.testing.assert_allclose(prediction.mean, JUDGE[f"{place}/probit"], atol=1e-5)
    evidence = float(JUDGE[f"{place}/evidence"])
    assert sure.posterior.evidence == pytest.approx(evidence, abs=1e-3)
    best = classifier.uncertainty(X, LABELS, **options).posterior
    expected = float(JUDGE[f"{place}/best_prior"][0])
    assert best.prior_precision == pytest.approx(expected, rel=1e-3)
    assert best.evidence > evidence


@pytest.mark.parametrize("structure", STRUCTURES)
def test_values_are_those_of_laplace_torch(regressor, structure):
    options = {"method": "laplace", "structure": structure, "noise": 0.25}
    sure = regressor.uncertainty(X, VALUES, prior_precision=2.0, **options)
    place = f"regression/{structure}"
    own = np.diagonal(JUDGE[f"{place}/variance"], axis1=1, axis2=2)
    prediction = sure.predict(NEW, level=0.9)
    np.testing.assert_allclose(prediction.spread**2, own + 0.25, rtol=1e-5)
    evidence = float(JUDGE[f"{place}/evidence"])
    assert sure.posterior.evidence == pytest.approx(evidence, abs=1e-3)
    half = np.diff(prediction.sets, axis=-1)[..., 0] / 2
    np.testing.assert_allclose(half, 1.6448536 * prediction.spread, rtol=1e-6)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_covariances_are_those_of_laplace_torch(task):
    last, family = JUDGE[f"{task}/last"], {"classification": "softmax"}
    features = np.c_[np.tanh(X @ JUDGE["first"]), np.ones(len(X))].astype(np.float32)
    new = np.c_[np.tanh(NEW @ JUDGE["first"]), np.ones(len(NEW))].astype(np.float32)
    targets = JUDGE[f"{task}/y"].astype("i4" if task in family else "f4")
    for structure in STRUCTURES:
        curvature = LikelihoodCurvature(structure)
        for some in (slice(15), slice(15, None)):
            f = features[some], (features @ last)[some].astype("f4"), targets[some]
            curvature.add(*f, family.get(task, "values"))
        posterior = fit_posterior(
            curvature, last, family.get(task, "values"), 2.0, 0.25
        )
        expected = JUDGE[f"{task}/{structure}/variance"]
        for number, vector in enumerate(np.eye(last.shape[1], dtype="f4")):
            vectors = np.tile(vector, (len(new), 1))
            own, product = output_variance(posterior.arrays, new, vectors)
            diagonal = np.diagonal(expected, axis1=1, axis2=2)
            np.testing.assert_allclose(own, diagonal, atol=1e-6)
            np.testing.assert_allclose(product, expected[:, number], atol=1e-6)
        if structure == "full":  # the judge has the classes first
            whole = (
                posterior.arrays["covariance"]
                .transpose(1, 0, 3, 2)
                .reshape(2 * [last.size])
            )
            expected = JUDGE[f"{task}/full/covariance"]
            np.testing.assert_allclose(whole, expected, atol=1e-6)
            diagonal = np.diagonal(whole).reshape(last.T.shape).T
            np.testing.assert_allclose(posterior.deviations**2, diagonal, rtol=1e-5)


def test_logits_are_the_same_as_their_softmax(classifier):
    other = network(JUDGE["classification/last"], None, LOGITS)
    apart: Any = exburn.Sequential(
        [exburn.Input((4,)), *other.layers, layers.Softmax()]
    )
    apart.compile("sgd", "cross_entropy")
    p = [
        model.uncertainty(X, LABELS, method="laplace").predict(NEW).mean
        for model in (classifier, other, apart)
    ]
    np.testing.assert_allclose(p[1], p[0], atol=1e-6)
    np.testing.assert_allclose(p[2], p[0], atol=1e-6)


def test_samples_agree_with_a_large_number_of_them(classifier):
    options = {"method": "laplace", "structure": "full", "link": "monte_carlo"}
    sure = classifier.uncertainty(X, LABELS, samples=4000, seed=1, **options)
    p = sure.predict(NEW)
    features = np.c_[np.tanh(NEW @ JUDGE["first"]), np.ones(len(NEW))]
    draws = np.random.default_rng(0).multivariate_normal(
        JUDGE["classification/last"].ravel(),
        sure.posterior.arrays["covariance"].reshape(18, 18),
        4000,
    )
    z = np.exp(np.einsum("ni,sik->snk", features, draws.reshape(-1, 6, 3)))
    each = z / z.sum(-1, keepdims=True)
    np.testing.assert_allclose(p.mean, each.mean(0), atol=0.02)
    np.testing.assert_allclose(p.spread, each.std(0), atol=0.02)
    again = sure.predict(NEW, batch_size=4)
    np.testing.assert_allclose(again.mean, p.mean, atol=1e-6)


def test_other_rows_choose_the_prior(classifier, regressor):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 4)).astype(np.float32)
    p = classifier.predict(x, verbose=0)
    y = (p.cumsum(1) > rng.uniform(size=(400, 1))).argmax(1)  # the model is right
    options = {"method": "laplace", "structure": "full"}
    chosen = classifier.uncertainty(X, LABELS, validation_data=(x, y), **options)
    by_rows = classifier.uncertainty(X, LABELS, **options)
    assert chosen.posterior.prior_precision > by_rows.posterior.prior_precision
    losses = [one.report(x, y).likelihood for one in (chosen, by_rows)]
    assert losses[0] < losses[1]
    values = regressor.predict(x, verbose=0) + rng.normal(size=(400, 2))
    options = {"method": "laplace", "validation_data": (x, values)}
    sure = regressor.uncertainty(X, VALUES, **options)
    half = regressor.uncertainty(
        X, VALUES, method="laplace", prior_precision=sure.posterior.prior_precision / 2
    )
    losses = [one.report(x, values).likelihood for one in (sure, half)]
    assert losses[0] <= losses[1] + 1e-3


def test_values_of_any_size_have_their_noise():
    noises = []
    for scale in (1.0, 1e-6, 1e6):
        model = network(scale * JUDGE["regression/last"], None, "mse")
        sure = model.uncertainty(X, scale * VALUES, method="laplace")
        noises.append(sure.noise / scale**2)
    assert noises[1:] == pytest.approx(noises[:1] * 2, rel=1e-2)


def test_no_probability_spreads_more_than_it_can(classifier):
    sure = classifier.uncertainty(X, LABELS, method="laplace", prior_precision=1e-9)
    p = sure.predict(NEW)
    assert (p.spread <= np.sqrt(p.mean * (1 - p.mean)) + 1e-6).all()


def test_rows_in_parts_are_the_rows(classifier, monkeypatch):
    options = {"method": "laplace", "structure": "full"}
    whole = classifier.uncertainty(X, LABELS, **options)
    for module in (laplace_module, posterior_module):
        monkeypatch.setattr(module, "_NUMBERS", 9 * 6 * 7)
    assert 9 * 6 * 7 // (6 * 3) < len(X)
    parts = classifier.uncertainty(
        iter([(X[:9], LABELS[:9]), (X[9:], LABELS[9:])]), **options
    )
    evidence = whole.posterior.evidence
    assert parts.posterior.evidence == pytest.approx(evidence, rel=1e-5)
    np.testing.assert_allclose(
        parts.predict(NEW).mean, whole.predict(NEW).mean, atol=1e-5
    )


def test_one_class_against_the_rest_is_two_classes():
    last = JUDGE["classification/last"][:, :1]
    y = (LABELS == 0).astype(int)
    single = network(last, "sigmoid", "binary_crossentropy")
    double = network(np.c_[0 * last, last], "softmax", "cross_entropy")
    options = {"method": "laplace", "structure": "full", "prior_precision": 1.0}
    p = single.uncertainty(X, y, **options).predict(NEW)
    # The difference of two logits has half the precision of each.
    options["prior_precision"] = 2.0
    other = double.uncertainty(X, y, **options).predict(NEW)
    assert p.mean.shape == (6, 2) and p.sets.shape == (6, 2)
    np.testing.assert_allclose(p.mean.sum(1), 1, atol=1e-6)
    np.testing.assert_allclose(p.spread, other.spread, atol=1e-5)


def test_outputs_by_name_and_along_an_axis():
    inputs = exburn.Input((3, 4))
    hidden = layers.Dense(5, "tanh")(inputs)
    steps = layers.Dense(2, "softmax", name="steps")(hidden)
    level = layers.Dense(1, name="level")(layers.GlobalAveragePooling1D()(hidden))
    model: Any = exburn.Model(inputs, {"steps": steps, "level": level})
    model.compile("sgd", {"steps": "cross_entropy", "level": "mse"}, seed=0)
    x = np.random.default_rng(0).normal(size=(8, 3, 4)).astype(np.float32)
    y = {"steps": np.zeros((8, 3), int), "level": x.mean((1, 2))[:, None]}
    named = model.uncertainty(x, y, method="laplace", output="steps")
    assert named.predict(x).mean.shape == (8, 3, 2)
    assert named.layer.path == "steps"
    other = model.uncertainty(x, y, method="laplace", output="level")
    assert other.predict(x).sets.shape == (8, 1, 2) and other.noise > 0


def test_the_last_product_alone_is_taken():
    inputs = exburn.Input((4,))
    product = layers.Dense(6)(inputs)
    ends = {
        "two rows": layers.Softmax()(layers.Reshape((2, 3))(product)),
        "scaled": layers.Softmax()(2.0 * product),
        "beside another": layers.Softmax()(product + layers.Dense(6, "relu")(inputs)),
    }
    for end in ends.values():
        model: Any = exburn.Model(inputs, end)
        model.compile("sgd", "cross_entropy", seed=0)
        y = np.zeros((40, 2), int) if end.ndim == 3 else LABELS
        with pytest.raises(ArgumentError, match="product of one Dense"):
            model.uncertainty(X, y, method="laplace")


def test_masked_places_do_not_count():
    stack = [layers.Embedding(9, 4, mask_zero=True), layers.Dense(3, "softmax")]
    model: Any = exburn.Sequential([exburn.Input((None,), dtype="int32"), *stack])
    model.compile("sgd", "cross_entropy", seed=0)
    short = np.random.default_rng(0).integers(1, 9, (12, 3))
    x = np.pad(short, ((0, 0), (0, 2)))
    y = np.where(x > 0, x % 3, -1)  # of no class where it does not count
    options = {"method": "laplace", "prior_precision": 1.0}
    padded = model.uncertainty(x, y, **options)
    whole = model.uncertainty(short, short % 3, **options)
    evidence = whole.posterior.evidence
    assert padded.posterior.evidence == pytest.approx(evidence, rel=1e-5)
    p = padded.predict(x).mean[:, :3]
    np.testing.assert_allclose(p, whole.predict(short).mean, atol=1e-6)
    assert padded.report(x, y).likelihood == pytest.approx(
        whole.report(short, short % 3).likelihood, rel=1e-6
    )


def test_mixed_precision_is_close_to_float32(classifier):
    last = JUDGE["classification/last"]
    half = network(last, "softmax", "cross_entropy", "mixed_bfloat16")
    p = half.uncertainty(X, LABELS, method="laplace").predict(NEW).mean
    whole = classifier.uncertainty(X, LABELS, method="laplace").predict(NEW).mean
    np.testing.assert_allclose(p, whole, atol=0.02)


def test_a_file_gives_the_same_and_knows_its_model(classifier, regressor, tmp_path):
    for model, y in ((classifier, LABELS), (regressor, VALUES)):
        for structure in STRUCTURES:
            sure = model.uncertainty(X, y, method="laplace", structure=structure)
            path = sure.save(tmp_path / "sure.safetensors")
            again = LaplacePredictor.load(path)
            with pytest.raises(ArgumentError, match="without its model"):
                again.predict(NEW)
            prediction = again.of(model).predict(NEW)
            np.testing.assert_array_equal(prediction.mean, sure.predict(NEW).mean)
            np.testing.assert_array_equal(prediction.sets, sure.predict(NEW).sets)
    with pytest.raises(ArgumentError, match="not those"):
        again.of(classifier)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelFormatError):
        LaplacePredictor.load(path)


def test_a_table_a_text_and_a_drawing(classifier):
    sure = classifier.uncertainty(X, LABELS, method="laplace")
    assert "prior precision" in str(sure) and "'dense_1'" in str(sure)
    assert len(sure.plot().axes[0].lines) == 2


BAD = [
    ({"structure": "low_rank"}, "structure"),
    ({"link": "bridge"}, "link"),
    ({"prior_precision": 0}, "prior_precision"),
    ({"noise": 0.1}, "classes"),
    ({"samples": 0}, "samples"),
    ({"validation_data": X}, "validation_data must be"),
    ({"validation_data": (X, LABELS), "prior_precision": 1.0}, "pass one"),
    ({"epochs": 3}, "epochs is not of"),
]


@pytest.mark.parametrize(("options", "text"), BAD)
def test_bad_options_are_refused(classifier, options, text):
    with pytest.raises(ArgumentError, match=text):
        classifier.uncertainty(X, LABELS, method="laplace", **options)


def test_models_that_it_does_not_fit_are_refused(regressor):
    last = JUDGE["regression/last"]
    with pytest.raises(ArgumentError, match="'mse'"):
        network(last, None, "mae").uncertainty(X, VALUES, method="laplace")
    with pytest.raises(ArgumentError, match="product of one Dense"):
        network(last, "tanh", "mse").uncertainty(X, VALUES, method="laplace")
    with pytest.raises(DataError, match="no targets"):
        regressor.uncertainty(X, method="laplace")
    adapted = network(last, None, "mse")
    adapted.layers[-1].enable_lora(2)
    with pytest.raises(ArgumentError, match="adapter"):
        adapted.uncertainty(X, VALUES, method="laplace")
