"""Tests of ``exburn.callbacks.contract.function``."""

import pytest

from exburn.callbacks.contract import CallbackList, FunctionCallback


def test_a_function_gets_the_logs_and_may_stop(model, drive):
    seen = []

    def watch(logs):
        seen.append(dict(logs))
        return {**logs, "stop_training": logs["loss"] < 0.5}

    rows = [{"loss": 0.9}, {"loss": 0.4}, {"loss": 0.3}]
    assert drive([watch], model, rows) == [0, 1]
    times = [{k: e.pop(k) for k in list(e) if k.endswith("_ms")} for e in seen]
    assert seen == [{"loss": 0.9, "epoch": 0}, {"loss": 0.4, "epoch": 1}]
    assert times[0].keys() == {"epoch_time_ms", "total_time_ms", "eta_ms"}
    assert 0 < times[0]["epoch_time_ms"] <= times[0]["total_time_ms"]
    assert times[0]["eta_ms"] == pytest.approx(2 * times[0]["total_time_ms"])
    assert times[1]["total_time_ms"] > times[0]["total_time_ms"]


def test_what_a_function_returns_otherwise_is_ignored(model, drive):
    drive([lambda logs: 1, lambda logs: {"loss": 0}, lambda logs: "x"], model, [{}])
    assert model.stop_training is False


def test_function_callback_is_what_a_list_makes_of_a_function():
    assert isinstance(CallbackList([print]).callbacks[0], FunctionCallback)
