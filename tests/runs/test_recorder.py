"""What ``fit(run=…)`` leaves: every epoch, how it ended, and a run to go on with."""

import json
import shutil

import numpy as np
import pytest
from tests.runs.conftest import rows, small_model

import exburn
from exburn import runs
from exburn.callbacks import Callback, History
from exburn.errors import ArgumentError, CheckpointError


def test_a_run_holds_what_history_holds(first):
    run = runs.read(first)
    assert run.state == "finished" and run.damaged == 0
    assert [record["epoch"] for record in run.epochs] == [0, 1, 2, 3]
    assert run.config["fit"]["batch_size"] == 16 and run.config["fit"]["epochs"] == 4
    assert run.config["model"]["parameters"] == 67
    assert run.config["compile"]["optimizer"]["class_name"] == "Adam"
    assert run.environment["versions"]["python"]
    assert run.metrics == ["loss", "accuracy"]
    assert {"begin", "compile", "end"} <= {event["event"] for event in run.events}
    # The last state is there to go on from.
    assert run.checkpoints[-1].epoch == 4
    assert {p.name for p in first.iterdir()} == {
        "checkpoints",
        "config.json",
        "environment.json",
        "events.jsonl",
        "metrics.jsonl",
        "predictions.json",
        "report.html",
    }


def test_another_fit_of_that_name_is_numbered_and_its_failure_recorded(recorded):
    run = runs.read(recorded / "first-2")
    assert run.state == "failed" and len(run.epochs) == 1
    last = run.events[-1]
    assert last["error"] == (
        "RuntimeError: in callback 'FunctionCallback' (on_epoch_end, epoch 1): "
        "the hook failed"
    )
    assert "in fail" in last["traceback"]
    assert runs.read(recorded / "first").state == "finished"


def test_a_resumed_run_goes_on_in_its_folder(recorded, tmp_path):
    model, (x, y) = small_model(), rows()
    fit = {"batch_size": 16, "verbose": 0, "run": tmp_path / "a", "resume": "auto"}
    model.fit(x, y, epochs=2, **fit)
    again = small_model()
    history = again.fit(x, y, epochs=4, **fit)
    run = runs.read(tmp_path / "a")
    assert history.history["loss"] == [e["logs"]["loss"] for e in run.epochs]
    assert [e["resumed"] for e in run.events if e["event"] == "begin"] == [False, True]
    whole = small_model().fit(x, y, epochs=4, batch_size=16, verbose=0)
    np.testing.assert_array_equal(history.history["loss"], whole.history["loss"])
    assert not (tmp_path / "a-2").exists()
    # Without recording, too, its folder is one to go on from.
    later = {"batch_size": 16, "verbose": 0, "resume": tmp_path / "a"}
    later["may_differ"] = "optimizer"
    history = small_model().fit(x, y, epochs=5, learning_rate=0.1, **later)
    assert len(history.epoch) == 5 and history.run is None


def test_a_run_that_cannot_be_gone_on_with_stays_as_it_is(tmp_path):
    (x, y), fit = rows(), {"batch_size": 16, "verbose": 0, "run": tmp_path / "a"}
    small_model().fit(x, y, epochs=2, **fit)
    before = {p: p.read_bytes() for p in (tmp_path / "a").iterdir() if p.is_file()}
    with pytest.raises(CheckpointError, match="y: other values"):
        small_model().fit(x, 2 - y, epochs=4, resume="auto", **fit)
    after = {p: p.read_bytes() for p in (tmp_path / "a").iterdir() if p.is_file()}
    assert after == before and runs.read(tmp_path / "a").state == "finished"


def test_a_run_without_checkpoints_is_described_anew(tmp_path):
    (x, y), fit = rows(), {"batch_size": 16, "verbose": 0, "run": tmp_path / "a"}
    small_model().fit(x, y, epochs=2, **fit)
    shutil.rmtree(tmp_path / "a" / "checkpoints")
    model = small_model()
    model.compile("sgd", "cross_entropy")
    model.fit(x, y, epochs=3, resume="auto", **fit)
    run = runs.read(tmp_path / "a")
    assert run.config["compile"]["optimizer"]["class_name"] == "SGD"
    assert run.config["fit"]["epochs"] == len(run.epochs) == 3


def test_a_loop_of_ones_own_is_recorded_and_may_be_left(tmp_path):
    model, (x, y) = small_model(), rows()
    for event in model.training(x, y, epochs=9, every="epoch", run=tmp_path / "a"):
        if event.epoch == 2:
            break
    run = runs.read(tmp_path / "a")
    assert run.state == "finished" and run.events[-1]["stopped_early"]
    assert len(run.epochs) == 3


class Ends(Callback):
    """Logs what is no number, and then ends the training as it is told."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def on_epoch_end(self, epoch, logs=None):
        logs["loss"] = float("nan")
        raise self.error


@pytest.mark.parametrize(
    ("error", "state"),
    [(KeyboardInterrupt(), "interrupted"), (SystemExit(143), "terminated")],
)
def test_interrupts_are_recorded(error, state, tmp_path):
    model, (x, y) = small_model(), rows()
    with pytest.raises(type(error)):
        model.fit(x, y, verbose=0, run=tmp_path / "a", callbacks=[Ends(error)])
    assert runs.read(tmp_path / "a").state == state


@pytest.mark.filterwarnings("ignore::exburn.errors.NonFiniteLossWarning")
def test_a_loss_that_is_no_number_is_an_event(tmp_path):
    model, (x, y) = small_model(), rows()
    x[0] = np.inf
    model.compile("adam", "cross_entropy", check_numerics=False)
    model.fit(x, y, verbose=0, epochs=2, run=tmp_path / "a")
    run = runs.read(tmp_path / "a")
    (event,) = (e for e in run.events if e["event"] == "nan")
    assert event["epoch"] == 0 and event["values"]["loss"] == "NaN"
    assert np.isnan(run.last["loss"])
    line = (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()[-1]
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert "Not a finite number" in (tmp_path / "a" / "report.html").read_text()


@pytest.mark.parametrize("place", [3, "", "taken", "file"])
def test_a_place_that_cannot_hold_a_run_is_refused_before_anything(place, tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").touch()
    (tmp_path / "file").touch()
    model, (x, y) = small_model(), rows()
    run = place if place in (3, "") else tmp_path / place
    with pytest.raises(ArgumentError, match="run must be|something else"):
        model.fit(x, y, verbose=0, run=run)
    assert model.trace_counts.get("train", 0) == 0
    assert isinstance(exburn.callbacks.History(), History)


def test_a_disk_that_refuses_costs_a_warning(tmp_path, monkeypatch):
    from exburn.runs.json_lines import LineFile

    model, (x, y) = small_model(), rows()

    def full(self, record):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LineFile, "add", full)
    with pytest.warns(RuntimeWarning, match="not recorded as a whole"):
        history = model.fit(x, y, verbose=0, epochs=2, run=tmp_path / "a")
    assert len(history.epoch) == 2
