"""Temperature and vector scaling: their numbers, their files, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import (
    ArgumentError,
    DataError,
    ModelFormatError,
    ShapeError,
    UnknownNameError,
)
from exburn.insight.uncertainty.outputs import softmax
from exburn.insight.uncertainty.report import UncertaintyReport
from exburn.insight.uncertainty.scaling import (
    ScaledPredictor,
    fit_scaling,
)


def identity(classes=3, activation=None, **options):
    """A model whose outputs are its inputs, or their softmax."""
    dense = layers.Dense(classes, activation, kernel_initializer="identity")
    model = exburn.Sequential([exburn.Input((classes,)), dense])
    if options:
        model.compile("sgd", **options)
    return model


def logits_model(classes=3):
    loss = exburn.losses.SparseCategoricalCrossentropy(from_logits=True)
    return identity(classes, loss=loss)


def draw(rows=600, classes=3, factor=0.5, offsets=0.0, seed=0):
    """Logits, and labels of the softmax of factor · logits + offsets."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, classes), scale=3).astype(np.float32)
    p = softmax(z * factor + offsets)
    y = (p.cumsum(1) > rng.uniform(size=(rows, 1))).argmax(1)
    return z, y


def test_temperature_is_found_again():
    z, y = draw(20_000)
    factors, offsets = fit_scaling(z.astype(float), y, "temperature")
    assert factors[0] == pytest.approx(0.5, abs=0.02) and offsets[0] == 0
    step = [_loss(z * f, y) for f in (factors[0] * 0.999, factors[0] * 1.001)]
    assert min(step) > _loss(z * factors[0], y)


def test_vector_finds_factors_and_offsets_again():
    factor, offsets = np.array([0.4, 0.7, 1.0]), np.array([0.5, -1.0, 0.5])
    z, y = draw(30_000, factor=factor, offsets=offsets)
    factors, found = fit_scaling(z.astype(float), y, "vector")
    np.testing.assert_allclose(factors, factor, atol=0.05)
    np.testing.assert_allclose(found, offsets, atol=0.05)


def _loss(z, y):
    return -np.log(softmax(z.astype(float))[np.arange(len(y)), y]).mean()


def test_logits_and_probabilities_give_the_same_temperature():
    z, y = draw()
    a = logits_model().uncertainty(z, y, method="temperature")
    b = identity(3, "softmax").uncertainty(z, y, method="temperature")
    np.testing.assert_allclose(
        a.predict(z).mean, b.predict(z).mean, rtol=1e-3, atol=1e-5
    )
    assert a.after < a.before
    report = a.report(z, y)
    assert report.likelihood == pytest.approx(a.after, abs=1e-5)
    assert report.calibration_error < 0.05


def test_one_class_against_the_rest():
    z, y = draw(classes=2)
    model = identity(1, "sigmoid", loss="binary_crossentropy")
    sure = model.uncertainty(z[:, 1:], y, method="vector", batch_size=7)
    mean, sets = sure.predict(z[:5, 1:], level=0.999)
    assert mean.shape == sets.shape == (5, 2)
    np.testing.assert_allclose(mean.sum(1), 1)
    one_hot = np.eye(2)[y]
    other = model.uncertainty(z[:, 1:], one_hot, method="vector")
    np.testing.assert_array_equal(other.factors, sure.factors)


def test_sets_are_the_fewest_likely_classes():
    z, y = draw()
    sure = logits_model().uncertainty(z, y, method="temperature")
    p, sets = sure.predict(z, level=0.8)
    inside = (p * sets).sum(1)
    least = np.where(sets, p, 2).min(1)
    assert (inside >= 0.8 - 1e-9).all() and (inside - least < 0.8).all()


def test_places_of_a_sequence_are_rows_of_their_own():
    dense = layers.Dense(2, "softmax", kernel_initializer="identity")
    model = exburn.Sequential([exburn.Input((4, 2)), dense])
    z, y = draw(80, 2)
    sure = model.uncertainty(z.reshape(20, 4, 2), y.reshape(20, 4), method="vector")
    assert sure.predict(z.reshape(20, 4, 2)).sets.shape == (20, 4, 2)
    flat = identity(2, "softmax").uncertainty(z, y, method="vector")
    np.testing.assert_allclose(sure.factors, flat.factors, rtol=1e-4)
    assert 0 < sure.report(z.reshape(20, 4, 2), y.reshape(20, 4)).coverage <= 1


def test_an_output_of_several_and_a_stream():
    inputs = exburn.Input((3,))
    a = layers.Softmax(name="kind")(inputs)
    b = layers.Dense(1, name="size")(inputs)
    model = exburn.Model(inputs, [a, b])
    z, y = draw(40)
    sure = model.uncertainty(z, y, method="temperature", output="kind")
    both = model.uncertainty(
        z, {"kind": y, "size": z[:, 0]}, method="temperature", output=0
    )
    batches = [(z[i : i + 15], (y[i : i + 15], z[i : i + 15, 0])) for i in (0, 15, 30)]
    stream = model.uncertainty(iter(batches), method="temperature", output="kind")
    assert sure.temperature == both.temperature
    assert stream.temperature == pytest.approx(sure.temperature, rel=1e-5)
    with pytest.raises(ArgumentError, match="2 outputs"):
        model.uncertainty(z, y, method="temperature")
    with pytest.raises(UnknownNameError):
        model.uncertainty(z, y, method="temperature", output="color")
    with pytest.raises(ArgumentError, match="values"):
        model.uncertainty(z, y, method="temperature", output="size")


BAD = {
    "weights": (
        DataError,
        "weights",
        lambda z, y: (iter([(z, y, z[:, 0] ** 2)]), None),
    ),
    "no targets": (DataError, "no targets", lambda z, y: (z, None)),
    "smoothed": (DataError, "one-hot", lambda z, y: (z, np.eye(3)[y] * 0.9 + 0.03)),
    "halves": (DataError, "whole", lambda z, y: (z, y + 0.5)),
    "class 3": (DataError, "from 0 to 2", lambda z, y: (z, y + 1)),
    "few": (DataError, "none of 2", lambda z, y: (z, y % 2)),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_rows_are_refused_before_anything_is_compiled(case, monkeypatch):
    error, match, change = BAD[case]
    z, y = draw(30)
    monkeypatch.setattr(
        "exburn.insight.uncertainty.outputs.run_rows",
        lambda *args, **kwargs: pytest.fail("it predicts"),
    )
    x, y = change(z, y)
    with pytest.raises(error, match=match):
        identity(3, "softmax").uncertainty(x, y, method="vector")


def test_options_of_other_methods_are_refused():
    z, y = draw(10)
    model = identity(3, "softmax")
    with pytest.raises(ArgumentError, match="bins is not of 'temperature'"):
        model.uncertainty(z, y, method="temperature", bins=3)
    with pytest.raises(ArgumentError, match="method"):
        model.uncertainty(z, y, method="isotonic")
    with pytest.raises(ArgumentError, match="each of 3 labels"):
        identity(3, "sigmoid").uncertainty(z, y, method="temperature")


def test_outputs_that_are_not_finite_are_named():
    z, y = draw(10)
    z[4] = np.nan
    with pytest.raises(DataError, match="row 4"):
        logits_model().uncertainty(z, y, method="temperature")


def test_rows_that_are_all_right_are_warned_of():
    z, y = draw(30)
    with pytest.warns(UserWarning, match="no finite factor"):
        sure = logits_model().uncertainty(z, z.argmax(1), method="temperature")
    assert np.isfinite(sure.predict(z).mean).all()


def test_a_file_is_bound_to_the_weights(tmp_path):
    z, y = draw(60)
    model = logits_model()
    sure = model.uncertainty(z, y, method="vector")
    path = sure.save(tmp_path / "sure.safetensors")
    with pytest.raises(ArgumentError, match="without its model"):
        ScaledPredictor.load(path).predict(z)
    again = ScaledPredictor.load(path).of(model)
    np.testing.assert_array_equal(again.predict(z).mean, sure.predict(z).mean)
    assert str(again) == str(sure)
    model.set_weights([w + 1 for w in model.get_weights()])
    with pytest.raises(ArgumentError, match="not those"):
        sure.predict(z)
    model.set_weights([w - 1 for w in model.get_weights()])
    sure.predict(z)  # the same numbers in other arrays
    model.fit(z, y, verbose=0)
    for use in (sure.predict, lambda z: sure.report(z, y)):
        with pytest.raises(ArgumentError, match="not those"):
            use(z)
    with pytest.raises(ArgumentError, match="not those"):
        ScaledPredictor.load(path).of(model)
    with pytest.raises(ModelFormatError):
        UncertaintyReport.load(path)


def test_a_file_is_bound_to_the_options(tmp_path):
    z, y = draw(60)
    model = logits_model()
    sure = model.uncertainty(z, y, method="vector")
    path = sure.save(tmp_path / "sure.safetensors")
    model.save(tmp_path / "model.exburn")
    model.trainable = False  # is no matter to what it predicts
    before = sure.predict(z).mean
    model.layers[0].activation = exburn.activations.tanh
    with pytest.raises(ArgumentError, match="not those"):
        sure.predict(z)
    with pytest.raises(ArgumentError, match="not those"):
        ScaledPredictor.load(path).of(model)
    read = exburn.load_model(tmp_path / "model.exburn")
    again = ScaledPredictor.load(path).of(read)
    np.testing.assert_array_equal(again.predict(z).mean, before)


def test_a_report_is_text_table_plot_and_file(tmp_path):
    z, y = draw(200)
    report = logits_model().uncertainty(z, y, method="temperature").report(z, y, 0.7)
    assert 0.7 in report.levels and report.coverage >= 0.7
    assert "calibration error" in str(report) and "Class" in report.text()
    assert len(report.plot().axes) == 2
    again = UncertaintyReport.load(report.save(tmp_path / "report.safetensors"))
    assert str(again) == str(report) and again.class_coverage.shape == (3,)


def test_an_ensemble_has_methods_too():
    from exburn.tuning import Ensemble

    z, y = draw(50)
    ensemble = Ensemble([identity(3, "softmax"), identity(3, "softmax")])
    assert ensemble.uncertainty(z).mean.shape == (50, 3)
    sure = ensemble.uncertainty(z, y, method="temperature", batch_size=8)
    assert sure.temperature > 0
    with pytest.raises(ArgumentError, match="for a method"):
        ensemble.uncertainty(z, y)


def test_rows_and_places_of_weight_0_do_not_count():
    z, y = draw(60)
    model, junk = identity(3, "softmax"), np.full((5, 3), 9, np.float32)
    padded = np.concatenate([z, junk]), np.r_[y, [0] * 5], np.r_[[1] * 60, [0] * 5]
    for options in ({"method": "temperature"}, {"score": "lac"}):
        plain = model.uncertainty(z, y, **options)
        sure = model.uncertainty(iter([padded]), **options)
        np.testing.assert_allclose(sure.predict(z).mean, plain.predict(z).mean)
        np.testing.assert_array_equal(sure.predict(z).sets, plain.predict(z).sets)
        report = sure.report(iter([padded]))
        assert report.rows == 60 and report.coverage == plain.report(z, y).coverage
    nothing = (z, y, np.zeros(60))
    with pytest.raises(DataError, match="no row counts"):
        model.uncertainty(iter([nothing]), method="temperature")
    with pytest.raises(ShapeError, match="one label for each row"):
        model.uncertainty(z, y[:, None][:, [0, 0]], method="temperature")


def test_masked_places_do_not_count():
    z, y = draw(40, 2)
    places = np.pad(z.reshape(10, 4, 2), ((0, 0), (0, 3), (0, 0)))
    labels = np.pad(y.reshape(10, 4), ((0, 0), (0, 3)), constant_values=-1)
    dense = layers.Dense(2, "softmax", kernel_initializer="identity")
    stack = [exburn.Input((None, 2)), layers.Masking(), dense]
    model = exburn.Sequential(stack)
    flat = identity(2, "softmax")
    sure = model.uncertainty(places, labels, method="vector")
    plain = flat.uncertainty(z, y, method="vector")
    np.testing.assert_allclose(sure.factors, plain.factors, rtol=1e-4)
    report, expected = sure.report(places, labels), plain.report(z, y)
    assert report.rows == expected.rows == 40
    assert report.likelihood == pytest.approx(expected.likelihood, rel=1e-5)
    assert report.coverage == expected.coverage
    weights = np.ones((10, 7), int)
    weights[:5] = 0
    half = sure.report(iter([(places, labels, weights)]))
    assert half.rows == 20
