"""Tests of ``exburn.callbacks.terminate_on_nan``."""

import numpy as np
import pytest

from exburn.callbacks import TerminateOnNaN
from exburn.errors import CallbackError

ROWS = [{"loss": 0.5, "accuracy": 0.25}, {"loss": 0.25, "accuracy": 0.5}]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float32("-inf")])
def test_nan_stops_within_the_epoch(value, model, capsys):
    guard = TerminateOnNaN()
    guard.set_model(model)
    guard.on_epoch_begin(0)
    guard.on_chunk_end(10, {"loss": 0.5})
    assert model.stop_training is False
    guard.on_chunk_end(20, {"loss": value})
    assert model.stop_training is True
    guard.on_epoch_end(0, {"loss": value})
    assert capsys.readouterr().out == (
        f"Step 20: the loss is {value}, training stops\n"
    )


def test_nan_may_raise(model, drive):
    with pytest.raises(CallbackError, match=r"stay finite, and is nan(.|\n)*Step 1"):
        drive([TerminateOnNaN(raise_error=True)], model, [{"loss": float("nan")}])
    assert drive([TerminateOnNaN(raise_error=True)], model, ROWS) == [0, 1]
    assert drive([TerminateOnNaN()], model, [{"accuracy": float("nan")}]) == [0]
