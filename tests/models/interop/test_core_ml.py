"""Predictions of Core ML models, which run on macOS."""

import sys
import types

import numpy as np
import pytest

import exburn
from exburn.errors import ArgumentError, DataError

X = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)


def close(a, b, tolerance=2e-5):
    assert type(a) is np.ndarray
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


class MLModel:
    """What coremltools offers on a Mac, as far as it is used."""

    __module__ = "coremltools.models.model"

    def get_spec(self):
        name = types.SimpleNamespace
        about = name(userDefined={})
        inputs = [name(name="features")]
        return name(description=name(input=inputs, metadata=about))

    def predict(self, feed):
        return {"doubled": feed["features"] * 2}


def test_core_ml_models_run_on_macs(monkeypatch):
    with pytest.raises(ArgumentError, match="macOS only, this is linux"):
        monkeypatch.setattr(sys, "platform", "linux")
        exburn.predict(MLModel(), X)
    monkeypatch.setattr(sys, "platform", "darwin")
    close(exburn.predict(MLModel(), X), 2 * X)
    close(exburn.predict(MLModel(), {"features": X}), 2 * X)
    with pytest.raises(DataError, match="'features'"):
        exburn.predict(MLModel(), {"x": X})
