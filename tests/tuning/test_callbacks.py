"""What is told of a whole sweep."""

from types import SimpleNamespace

import pytest

from exburn.errors import ArgumentError
from exburn.tuning.callbacks import Progress, SweepCallback, make_callbacks
from exburn.tuning.records import LaneRecord, best_of


def run_of(*scores, status="running"):
    records = [
        LaneRecord({"seed": i}, {"loss": [s]}, 1, status, score=s)
        for i, s in enumerate(scores)
    ]
    return SimpleNamespace(
        records=records,
        epochs=2,
        monitor="loss",
        best=lambda: best_of(records, "min"),
        describe=lambda: ["3 lanes"],
    )


def test_progress_names_the_best_lane_and_those_that_are_frozen():
    lines = []
    progress = Progress(seconds=0.0, write=lines.append)
    progress.run = run_of(0.5, 0.25, float("nan"))
    progress.run.records[2].status = "nan"
    progress.on_sweep_begin()
    progress.on_epoch_end(0)
    progress.on_rung_end(1, [0])
    assert lines[0] == "3 lanes" and lines[2] == "after 1 epochs 2 lanes go on"
    assert lines[1].startswith("epoch 1/2 · 2 lanes · 1 NaN · best loss 0.25 (seed=1)")


def test_functions_are_called_with_the_epoch_and_the_records():
    seen = []
    told = lambda epoch, records: seen.append((epoch, records))  # noqa: E731
    (one,), _ = make_callbacks(told, 0)
    one.run = run_of(1.0)
    one.on_epoch_end(3)
    assert seen == [(3, one.run.records)]


def test_progress_is_told_last_and_only_if_it_is_wanted():
    mine = SweepCallback()
    assert make_callbacks([mine], verbose=0) == ([mine], None)
    assert isinstance(make_callbacks(mine, verbose="auto")[0][-1], Progress)


@pytest.mark.parametrize("given", [3, object()])
def test_what_is_no_callback_is_refused(given):
    with pytest.raises(ArgumentError, match="SweepCallback"):
        make_callbacks(given, 0)
