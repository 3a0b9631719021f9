"""All methods on unusual models and data: the same answer, or an error by name."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError, DataError, ExBurnError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
METHODS: dict[str, dict[str, Any]] = {
    "conformal": {},
    "temperature": {},
    "laplace": {"prior_precision": 1.0},
    "swag": {"epochs": 2, "samples": 2},
    "dropout": {"samples": 2},
}
each_method = pytest.mark.parametrize("method", METHODS)


def build(shape=None, activation: Any = "softmax", loss: Any = "cross_entropy") -> Any:
    first = exburn.Input((4,)) if shape is None else exburn.Input(batch_shape=shape)
    last = layers.Dense(3, activation)
    model = exburn.Sequential([first, layers.Dropout(0.5), last])
    model.compile("sgd", loss, seed=0)
    return model


@pytest.fixture(scope="module")
def made():
    model = build()
    predictors = {
        method: model.uncertainty(X, Y, method=method, **options)
        for method, options in METHODS.items()
    }
    return model, predictors


@each_method
def test_copies_and_clones_are_the_model(made, method):
    model, sure = made[0], made[1][method]
    p = sure.predict(X).mean
    for again in (copy.deepcopy(sure), sure.of(model.clone())):
        np.testing.assert_array_equal(again.predict(X).mean, p)


@each_method
def test_a_table_and_a_stream_are_the_rows(made, method):
    sure = made[1][method]
    p = sure.predict(X).mean
    table = pd.DataFrame(X, columns=list("abcd"))
    np.testing.assert_allclose(sure.predict(table).mean, p, atol=1e-6)
    stream = sure.predict(iter([X[:9], X[9:]])).mean
    np.testing.assert_allclose(stream, p, atol=1e-6)
    assert sure.report(iter([(X[:9], Y[:9]), (X[9:], Y[9:])])).rows == 40


@each_method
def test_what_logits_are_is_that_of_the_calibration(method):
    logits = exburn.losses.SparseCategoricalCrossentropy
    model = build(activation=None, loss=logits(from_logits=True))
    sure = model.uncertainty(X, Y, method=method, **METHODS[method])
    p = sure.predict(X).mean
    model.compile("sgd", logits(from_logits=False), seed=0)
    np.testing.assert_array_equal(sure.predict(X).mean, p)


@each_method
def test_fixed_batches_and_adapters_are_no_matter(method):
    fixed = build((8, 4))
    sure = fixed.uncertainty(X, Y, method=method, **METHODS[method])
    assert sure.predict(X).mean.shape == (40, 3)
    adapted = build()
    adapted.layers[-1].enable_lora(2)
    options = {"method": method, **METHODS[method]}
    if method == "laplace":
        with pytest.raises(ArgumentError, match="adapter"):
            adapted.uncertainty(X, Y, **options)
    else:
        assert adapted.uncertainty(X, Y, **options).report(X, Y).rows == 40


@each_method
def test_classes_that_were_never_seen_are_reported(made, method):
    report = made[1][method].report(X, Y * 0)
    assert np.isnan(report.class_coverage[1:]).all() and "Class 0" in report.text()
    assert report.likelihood > 0


@each_method
def test_rows_that_are_no_numbers_or_none_are_refused(made, method):
    model, sure = made[0], made[1][method]
    with pytest.raises(DataError, match="row 3 is not finite"):
        sure.predict(np.where(np.arange(40)[:, None] == 3, np.nan, X))
    for level in (0, 1, np.nan):
        with pytest.raises(ArgumentError, match="level"):
            sure.predict(X, level=level)
    for x, y in ((X[:0], Y[:0]), (X, Y[:-1]), (X, Y + 3)):
        with pytest.raises(ExBurnError):
            model.uncertainty(x, y, method=method, **METHODS[method])
