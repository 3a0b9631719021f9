"""Outputs of layers: captured, and streamed out of ``fit``."""

import logging

import numpy as np
import pytest
from tests.models.networks import X, Y, make

from exburn import compute
from exburn.errors import ArgumentError


def test_on_output_streams_out_of_fit():
    model = make()
    seen = []
    with model.on_output("hidden", lambda out: seen.append(out.copy())):
        model.fit(X, Y, batch_size=4, verbose=0, shuffle=False)
        compute.synchronize()
        assert sorted(len(out) for out in seen) == [2, 4, 4]  # no padding
        seen.clear()
        model.evaluate(X, Y, batch_size=16, verbose=0)
        compute.synchronize()
        np.testing.assert_allclose(
            np.concatenate(seen), model.capture(X)["hidden"], rtol=1e-5
        )
        model.summary(print_fn=lambda text: None)
    seen.clear()
    model.fit(X, Y, verbose=0)
    compute.synchronize()
    assert seen == []


def test_an_error_in_on_output_costs_no_weights(caplog):
    model = make()
    calls = []

    def fail(out):
        calls.append(1)
        raise ValueError("mine")

    tap = model.on_output("hidden", fail)
    with caplog.at_level(logging.ERROR, "exburn"):
        model.fit(X, Y, batch_size=2, verbose=0)
        compute.synchronize()
    assert str(tap.error) == "mine" and calls == [1] and "mine" in caplog.text
    tap.remove()
    assert np.isfinite(model.predict(X, verbose=0)).all()
    with pytest.raises(ArgumentError):
        model.on_output("hidden", "no function")
