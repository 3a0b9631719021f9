"""Requests are checked in the caller, before they are queued."""

import asyncio

import numpy as np
import pytest

import exburn
from exburn import Serving, layers
from exburn.errors import (
    DataError,
    DTypeError,
    ShapeError,
)

BAD = {
    "shape": (lambda x: x[:, :7], ShapeError, r"float32\[None, 8\]"),
    "rank": (lambda x: x[0], ShapeError, "first axis"),
    "scalar": (lambda x: np.float32(1), ShapeError, "scalar"),
    "empty": (lambda x: x[:0], DataError, "empty"),
    "strings": (lambda x: np.array([["a"] * 8]), DTypeError, "strings"),
    "two": (lambda x: [x, x], DataError, "must hold"),
    "other name": (lambda x: {"a": x, "b": x}, DataError, "must hold"),
    "unknown name": (lambda x: {"other": x}, DataError, "must hold"),
    "nan": (lambda x: x * np.nan, DataError, "NaN"),
    "loader": (lambda x: iter([x]), DTypeError, "stream"),
    "none": (lambda x: None, DataError, "None"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_raises_before_it_is_queued(mlp, rows, name):
    change, error, text = BAD[name]
    with Serving(mlp, batch_size=2, padding=[2], check_numerics=True) as serving:
        for send in (serving, serving.submit, lambda x: asyncio.run(serving.arun(x))):
            with pytest.raises(error, match=text):
                send(change(rows(2)))
        counts = serving.statistics().requests
    assert (counts["invalid"], counts["accepted"]) == (3, 0)


def test_ids_beyond_the_table_are_refused():
    model = exburn.Sequential(
        [exburn.Input((2,), dtype="int32"), layers.Embedding(5, 3)]
    )
    with Serving(model, batch_size=2, batch_timeout=0.0, padding=[2]) as serving:
        assert serving(np.array([[0, 4]])).shape == (1, 2, 3)
        with pytest.raises(DataError, match="from 0 to 4"):
            serving(np.array([[0, 5]]))
        assert serving(np.array([[0.0, 1.0]])).shape == (1, 2, 3)
        with pytest.raises(DataError, match="must hold int32"):
            serving(np.array([[0.0, 1.5]]))


def test_nan_passes_unless_it_is_refused(serving, rows):
    assert np.isnan(serving(rows(1) * np.nan)).all()


def test_the_callers_array_may_change_after_submit(gate):
    with Serving(gate, batch_size=1, batch_timeout=0.0, example=gate.row(0)) as serving:
        gate.block(serving)
        x = gate.row(1.0)
        future = serving.submit(x)
        seen = serving.submit(y := gate.row(1.0), copy=False)
        x[:] = y[:] = 100
        gate.open.set()
        assert (future.result(20).item(), seen.result(20).item()) == (2, 200)
