"""Conformal sets and intervals of models: coverage, options, files, refusals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError, DataError, ModelFormatError, ShapeError
from exburn.insight.uncertainty.conformal import ConformalPredictor
from exburn.insight.uncertainty.outputs import softmax

PREDICT = "exburn.insight.uncertainty.outputs.run_rows"


def classifier(classes=3, activation="softmax"):
    dense = layers.Dense(classes, activation, kernel_initializer="identity")
    return exburn.Sequential([exburn.Input((classes,)), dense])


def draw(rows, classes=3, seed=0):
    """Logits, and labels that are likelier than the logits say."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, classes), scale=1.5).astype(np.float32)
    p = softmax(z * 0.7)
    return z, (p.cumsum(1) > rng.uniform(size=(rows, 1))).argmax(1)


def regressor(outputs=1):
    dense = layers.Dense(outputs, kernel_initializer="ones")
    return exburn.Sequential([exburn.Input((1,)), dense])


def series(rows, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(1, 3, size=(rows, 1)).astype(np.float32)
    return x, x + x * rng.normal(size=(rows, 1))


OPTIONS = [
    {"score": "lac"},
    {"score": "lac", "by_class": True},
    {"score": "aps"},
    {"score": "aps", "randomized": True, "seed": 3},
    {"score": "raps", "penalty": 0.1, "free_classes": 2, "by_class": True},
    {"score": "raps", "randomized": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_sets_cover_the_level(options, tmp_path):
    (z, y), (new, labels) = draw(3000), draw(8000, seed=1)
    model = classifier()
    sure = model.uncertainty(z, y, batch_size=512, **options)
    report = sure.report(new, labels, level=0.8, batch_size=2000)
    assert report.coverage == pytest.approx(0.8, abs=0.02)
    if options.get("by_class"):
        np.testing.assert_allclose(report.class_coverage, 0.8, atol=0.035)
    np.testing.assert_allclose(report.coverages, report.levels, atol=0.025)
    sets = sure.predict(new[:50], 0.8).sets
    assert sets.shape == (50, 3) and sets.dtype == bool
    again = ConformalPredictor.load(sure.save(tmp_path / "sure.safetensors")).of(model)
    np.testing.assert_array_equal(again.predict(new[:50], 0.8).sets, sets)
    assert str(again) == str(sure) and sure.plot().axes


def test_sets_grow_with_the_level():
    z, y = draw(300)
    sure = classifier().uncertainty(z, y, score="aps")
    sizes = [sure.predict(z, level).sets for level in (0.5, 0.7, 0.9, 0.99)]
    for small, large in zip(sizes, sizes[1:], strict=False):
        assert (large >= small).all() and (large != small).any()


def test_logits_give_the_sets_of_probabilities():
    z, y = draw(200)
    logits = classifier(activation=None)
    logits.compile("sgd", exburn.losses.CategoricalCrossentropy(from_logits=True))
    a = logits.uncertainty(z, np.eye(3)[y]).predict(z)
    b = classifier().uncertainty(z, y).predict(z)
    np.testing.assert_allclose(a.mean, b.mean, atol=1e-6)
    assert (a.sets == b.sets).mean() > 0.99


def test_one_class_against_the_rest_has_sets_of_two():
    z, y = draw(400, 2)
    dense = layers.Dense(1, "sigmoid", kernel_initializer=lambda s, d: [[-1.0], [1.0]])
    model = exburn.Sequential([exburn.Input((2,)), dense])
    sure = model.uncertainty(z, y, score="lac", by_class=True)
    assert sure.report(z, y, 0.9).coverage >= 0.9
    assert sure.threshold(0.9).shape == (2,)


def test_intervals_cover_the_level():
    (x, y), (new, targets) = series(2000), series(6000, 1)
    model = regressor()
    one = model.uncertainty(x, y, batch_size=500)
    report = one.report(new, targets, level=0.9, batch_size=2000)
    assert report.coverage == pytest.approx(0.9, abs=0.02)
    assert report.calibration is None and report.error > 1
    mean, sets = one.predict(new[:4])
    assert mean.shape == (4, 1) and sets.shape == (4, 1, 2)
    widths = np.diff(sets)
    assert np.ptp(widths) < 1e-9
    wide = model.uncertainty(x, y, score="normalized", spread=lambda x: x)
    assert wide.report(new, targets).coverage == pytest.approx(0.9, abs=0.02)
    found = wide.predict(new[:4])
    np.testing.assert_allclose(found.spread, new[:4])
    width = 2 * float(wide.threshold(0.9)[0])
    np.testing.assert_allclose(np.diff(found.sets)[..., 0], width * new[:4])


def test_a_spread_may_be_an_output_and_must_be_positive(tmp_path):
    inputs = exburn.Input((1,))
    mean = layers.Dense(1, kernel_initializer="ones", name="mean")(inputs)
    spread = layers.ReLU(name="spread")(mean)
    model = exburn.Model(inputs, [mean, spread])
    x, y = series(100)
    options = {"score": "normalized", "output": "mean"}
    a = model.uncertainty(x, y, spread="spread", **options)
    b = model.uncertainty(x, y, spread=lambda x: x, **options)
    np.testing.assert_allclose(a.scores, b.scores, rtol=1e-6)
    again = ConformalPredictor.load(a.save(tmp_path / "a.safetensors")).of(model)
    np.testing.assert_array_equal(again.predict(x).sets, a.predict(x).sets)
    with pytest.raises(ArgumentError, match="no file holds"):
        b.save(tmp_path / "b.safetensors")
    x[7] = -1
    with pytest.raises(DataError, match="row 7"):
        model.uncertainty(x, y, spread="spread", **options)


@pytest.mark.parametrize("shape", [(200,), (200, 1)])
def test_quantiles_are_made_to_cover(shape):
    x, y = series(200)
    model = exburn.Sequential(
        [
            exburn.Input((1,)),
            layers.Dense(2, kernel_initializer=lambda s, d: [[0.5, 1.5]]),
        ]
    )
    sure = model.uncertainty(x, y.reshape(shape), score="quantile")
    mean, sets = sure.predict(x, 0.8)
    assert mean.shape == (200,) and sets.shape == (200, 2)
    np.testing.assert_allclose(mean, x[:, 0], rtol=1e-6)
    assert sure.report(x, y.reshape(shape), 0.8).coverage >= 0.8
    assert sure.report(x, y.reshape(shape), 0.8).coverage <= 0.82


def test_each_value_of_a_row_has_its_own_bound():
    rng = np.random.default_rng(0)
    x = np.ones((400, 1), np.float32)
    y = 1 + rng.normal(size=(400, 2)) * [1.0, 10.0]
    sure = regressor(2).uncertainty(x, y)
    widths = np.diff(sure.predict(x[:1]).sets)[0, :, 0]
    assert 7 < widths[1] / widths[0] < 13
    assert "each value" in sure.text()
    loaded = sure.from_content(*sure.to_content())
    assert loaded.threshold(0.9).shape == (2,)


def test_rows_of_tables_and_streams_give_the_same():
    z, y = draw(90)
    model = classifier()
    plain = model.uncertainty(z, y)
    table = model.uncertainty(pd.DataFrame(z, columns=list("abc")), y)
    batches = [(z[i : i + 25], y[i : i + 25]) for i in range(0, 90, 25)]
    stream = model.uncertainty(iter(batches))
    for other in (table, stream):
        np.testing.assert_allclose(other.scores, plain.scores, atol=1e-6)


def test_too_few_rows_for_a_level_are_refused_before_anything_is_compiled(monkeypatch):
    z, y = draw(12)
    sure = classifier().uncertainty(z, y)
    by_class = classifier().uncertainty(z, y, by_class=True)
    monkeypatch.setattr(PREDICT, lambda *a, **k: pytest.fail("it predicts"))
    with pytest.raises(ArgumentError, match="needs 19 rows, and there were 12"):
        sure.predict(z, level=0.95)
    with pytest.raises(ArgumentError, match=r"up to 0\.923"):
        sure.report(z, y, level=0.95)
    with pytest.raises(ArgumentError, match="rows of class"):
        by_class.predict(z, level=0.9)
    for level in (0, 1, 1.5, float("nan"), "much", None):
        with pytest.raises(ArgumentError, match="level"):
            sure.predict(z, level=level)


REFUSED = {
    "absolute": "score",
    "by_class": "by_class",
    "randomized": "randomized is of",
    "penalty": "penalty is of",
    "free_classes": "free_classes is of",
    "spread": "spread is of",
    "bins": "bins is not of",
}
VALUES = {
    "absolute": {"score": "absolute"},
    "by_class": {"by_class": "yes"},
    "randomized": {"randomized": True},
    "penalty": {"penalty": 0.1},
    "free_classes": {"score": "aps", "free_classes": 2},
    "spread": {"spread": lambda x: x},
    "bins": {"bins": 4},
}


@pytest.mark.parametrize("case", REFUSED)
def test_options_that_are_not_honoured_are_refused(case, monkeypatch):
    monkeypatch.setattr(PREDICT, lambda *a, **k: pytest.fail("it predicts"))
    z, y = draw(30)
    with pytest.raises(ArgumentError, match=REFUSED[case]):
        classifier().uncertainty(z, y, **VALUES[case])


def test_options_of_classes_are_refused_for_values(monkeypatch):
    monkeypatch.setattr(PREDICT, lambda *a, **k: pytest.fail("it predicts"))
    x, y = series(30)
    for options, match in (
        ({"by_class": True}, "by_class"),
        ({"score": "lac"}, "score"),
        ({"score": "normalized"}, "needs a spread"),
        ({"score": "quantile"}, "of quantiles"),
    ):
        with pytest.raises(ArgumentError, match=match):
            regressor().uncertainty(x, y, **options)
    with pytest.raises(ShapeError, match="from_logits"):
        regressor(3).uncertainty(x, np.zeros(30, int))
    with pytest.raises(DataError, match="row 3"):
        regressor().uncertainty(x, np.where(np.arange(30)[:, None] == 3, np.nan, y))


def test_a_model_of_fixed_batches_takes_them():
    z, y = draw(45)
    dense = layers.Dense(3, "softmax", kernel_initializer="identity")
    fixed = exburn.Sequential([exburn.Input(batch_shape=(10, 3)), dense])
    sure = fixed.uncertainty(z, y)
    assert (
        sure.predict(z).sets == classifier().uncertainty(z, y).predict(z).sets
    ).all()
    with pytest.raises(ArgumentError, match="must be 10"):
        sure.predict(z, batch_size=32)


def test_places_and_absent_classes_are_refused():
    dense = layers.Dense(3, "softmax")
    model = exburn.Sequential([exburn.Input((4, 3)), dense])
    with pytest.raises(ArgumentError, match="several places"):
        model.uncertainty(np.zeros((9, 4, 3)), np.zeros((9, 4), int))
    z, y = draw(30)
    with pytest.raises(DataError, match="none are of 2"):
        classifier().uncertainty(z, y % 2, by_class=True)


def test_rows_that_look_like_a_time_series_are_warned_of(recwarn):
    x, y = series(400)
    regressor().uncertainty(x, y)
    assert not recwarn.list
    walk = x + np.cumsum(np.random.default_rng(0).normal(size=(400, 1)), axis=0)
    with pytest.warns(UserWarning, match=r"correlate by 0\.9"):
        regressor().uncertainty(x, walk)
    times = pd.date_range("2026-01-01", periods=400)
    with pytest.warns(UserWarning, match="has times"):
        regressor().uncertainty(pd.DataFrame(x, index=times, columns=["x"]), y)


BROKEN = {
    "score": lambda s, a: s["score"].update(name="absolute"),
    "penalty": lambda s, a: s["score"].update(penalty=-1),
    "nan": lambda s, a: a.update(scores=a["scores"] * np.nan),
    "integers": lambda s, a: a.update(scores=a["scores"].astype(np.int64)),
    "empty": lambda s, a: a.update(scores=a["scores"][:0]),
    "labels": lambda s, a: a.update(labels=a["labels"] + 1),
    "shape": lambda s, a: s["head"].update(shape=[None]),
    "family": lambda s, a: s["head"].update(family="values"),
    "number": lambda s, a: s["head"].update(number=3),
    "digest": lambda s, a: s.update(digest="abc"),
    "spread": lambda s, a: s["score"].update(spread=0),
    "more": lambda s, a: s["head"].update(more=1),
}


@pytest.mark.parametrize("case", BROKEN)
def test_files_that_say_nonsense_are_refused(case, tmp_path, monkeypatch):
    z, y = draw(40)
    sure = classifier().uncertainty(z, y, by_class=True)
    settings, arrays = sure.to_content()
    BROKEN[case](settings, arrays)
    monkeypatch.setattr(
        ConformalPredictor, "to_content", lambda self: (settings, arrays)
    )
    path = dataclasses.replace(sure).save(tmp_path / "bad.safetensors")
    with pytest.raises(ModelFormatError):
        ConformalPredictor.load(path)


def test_another_kind_of_file_is_refused(tmp_path):
    z, y = draw(40)
    sure = classifier().uncertainty(z, y, method="temperature")
    path = sure.save(tmp_path / "scaled.safetensors")
    with pytest.raises(ModelFormatError, match="no conformal predictor"):
        ConformalPredictor.load(path)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelFormatError):
        type(sure).load(path)
