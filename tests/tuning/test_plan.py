"""What a sweep comes to, before it begins."""

import pytest
from tests.tuning.models import X, Y, make_model

import exburn
from exburn.errors import UnknownNameError
from exburn.tuning import Halving

ROWS = {"x": X, "y": Y, "batch_size": 8, "epochs": 4}


def test_a_plan_tells_work_memory_and_what_runs_in_turn():
    model = make_model()
    over = {"seed": range(4), "hidden/activation": ["relu", "tanh"]}
    found = exburn.sweep.plan(model, over=over, halving=Halving(eta=2), **ROWS)
    assert (found.lanes, found.programs, found.groups) == (8, 2, 2)
    assert found.rungs == ((1, 8), (2, 4), (4, 2)) and found.lane_epochs == 16
    weights = sum(w.nbytes for w in model.get_weights())
    assert 2 * weights < found.state_bytes < 5 * weights  # with Adam's slots
    assert found.state_bytes < found.lane_bytes < found.available_bytes
    assert found.lanes_that_fit > 8 and found.fits
    assert found.data_bytes == X.nbytes + Y.astype("int32").nbytes
    text = str(found)
    assert "8 to 1 → 4 to 2 → 2 to 4" in text and "hidden/activation" in text
    assert (
        found["lanes"] == 8
        and not model._training_session.preparer.program_cache.trace_counts
    )


def test_a_plan_refuses_what_the_sweep_would():
    with pytest.raises(UnknownNameError, match="'seed'"):
        exburn.sweep.plan(make_model(), over={"sed": [1]}, **ROWS)
    with pytest.raises(TypeError, match="halvin"):
        exburn.sweep.plan(make_model(), over={"seed": [1]}, halvin=None, **ROWS)
