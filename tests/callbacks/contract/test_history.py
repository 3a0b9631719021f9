"""Tests of ``exburn.callbacks.contract.history``."""

import json
import sys

import numpy as np
import pytest
from tests.visualization.html_pages import Page

from exburn.callbacks.contract import Callback, History
from exburn.errors import CallbackError, MissingDependencyError, UnknownNameError

ROWS = [
    {"loss": 0.9, "accuracy": 0.5},
    {"loss": 0.6, "accuracy": 0.7, "val_loss": 0.8},
    {"loss": 0.5, "accuracy": 0.8},
    {"loss": 0.4, "accuracy": 0.9, "val_loss": 0.6},
]


class Interrupting(dict):
    """Logs whose reading is interrupted, as by Ctrl-C, after the first name."""

    def items(self):
        for index, item in enumerate(super().items()):
            if index:
                raise KeyboardInterrupt
            yield item


def test_it_records_as_keras_does(model, drive):
    history = History()
    drive([history], model, ROWS)
    assert history.epoch == [0, 1, 2, 3]
    assert history.history == {
        "loss": [0.9, 0.6, 0.5, 0.4],
        "accuracy": [0.5, 0.7, 0.8, 0.9],
        "val_loss": [0.8, 0.6],
    }
    assert history.epochs_of("val_loss") == [1, 3]
    assert history.params["epochs"] == 4
    assert history.seed is None


def test_another_fit_begins_a_new_record(model, drive):
    history = History()
    drive([history], model, ROWS)
    drive([history], model, ROWS[:1], start=7)
    assert history.epoch == [7] and history.history["loss"] == [0.9]


@pytest.mark.parametrize("finished", [0, 2])
def test_an_interrupted_epoch_is_not_recorded_at_all(finished):
    history = History()
    for epoch, row in enumerate(ROWS[:finished]):
        history.on_epoch_end(epoch, row)
    before = {name: list(values) for name, values in history.history.items()}
    with pytest.raises(KeyboardInterrupt):
        history.on_epoch_end(finished, Interrupting(loss=1.0, other=2.0))
    assert history.history == before
    assert history.epoch == list(range(finished))
    history.on_epoch_end(finished, {"loss": 0.1})
    assert history.epochs_of("loss") == list(range(finished + 1))


def test_an_exception_of_another_callback_leaves_whole_epochs(model, drive):
    class Broken(Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 2:
                raise RuntimeError("oops")

    for callbacks, epochs in (([History(), Broken()], 3), ([Broken(), History()], 2)):
        history = next(c for c in callbacks if isinstance(c, History))
        with pytest.raises(RuntimeError, match="oops"):
            drive(callbacks, model, [{"loss": 1.0, "acc": 0.5}] * 4)
        assert history.epoch == list(range(epochs))
        assert {len(values) for values in history.history.values()} == {epochs}


def test_state_survives_json_and_goes_on(model, drive):
    history = History()
    history.seed = 7
    drive([history], model, ROWS[:2])
    state = json.loads(json.dumps(history.state_dict()))
    again = History()
    again.load_state_dict(state)
    drive([again], model, ROWS[2:], start=2)
    whole = History()
    drive([whole], model, ROWS)
    assert again.history == whole.history
    assert again.epoch == whole.epoch and again.seed == 7
    assert again.epochs_of("val_loss") == [1, 3]


def test_plot_draws_training_and_validation_in_one_panel(model, drive, tmp_path):
    history = History()
    drive([history], model, ROWS)
    figure = history.plot()
    loss, accuracy = figure.axes
    training, validation = loss.lines
    assert training.get_xdata().tolist() == [1, 2, 3, 4]
    assert training.get_ydata().tolist() == [0.9, 0.6, 0.5, 0.4]
    assert validation.get_xdata().tolist() == [2, 4]
    assert [t.get_text() for t in loss.get_legend().get_texts()] == [
        "training",
        "validation",
    ]
    assert accuracy.get_title() == "accuracy" and accuracy.get_legend() is None
    assert (loss.get_xlabel(), loss.get_ylabel()) == ("epoch", "loss")
    figure.savefig(tmp_path / "history.png")
    assert (tmp_path / "history.png").read_bytes()[:4] == b"\x89PNG"
    assert [axes.get_title() for axes in history.plot("loss").axes] == ["loss"]


def test_plot_after_the_user_joined_two_records():
    history = History()
    history.on_epoch_end(0, {"loss": 0.9})
    history.history["loss"] += [0.8, 0.7]
    assert history.plot().axes[0].lines[0].get_xdata().tolist() == [1, 2, 3]


def test_plot_leaves_out_a_rate_that_never_changed():
    history, changing = History(), History()
    for epoch in range(3):
        history.on_epoch_end(epoch, {"loss": 0.9, "learning_rate": 0.1})
        changing.on_epoch_end(epoch, {"loss": 0.9, "learning_rate": 0.1 / (epoch + 1)})
    assert [axes.get_title() for axes in history.plot().axes] == ["loss"]
    assert len(changing.plot().axes) == 2
    assert len(history.plot("learning_rate").axes) == 1


def test_plot_does_not_open_pyplot():
    history = History()
    history.on_epoch_end(0, {"loss": 0.9})
    before = "matplotlib.pyplot" in sys.modules
    history.plot()
    assert ("matplotlib.pyplot" in sys.modules) == before


def test_plot_errors(monkeypatch):
    history = History()
    with pytest.raises(CallbackError, match="no epoch has been recorded"):
        history.plot()
    history.on_epoch_end(0, {"loss": 0.9, "accuracy": 0.1})
    with pytest.raises(UnknownNameError, match="Did you mean 'accuracy'"):
        history.plot(["acuracy"])
    with pytest.raises(UnknownNameError, match="loss"):
        history.epochs_of("lost")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match="pip install"):
        history.plot()


def test_a_notebook_shows_curves_and_values(model, drive):
    history = History()
    drive([history], model, ROWS)
    read = Page(history._repr_html_()).check()
    assert read.names.count("svg") == 2 and read.names.count("polyline") == 3
    table = read.text[read.text.index("in epoch") :]
    assert table == "in epochloss0.40.44val_loss0.60.64accuracy0.90.94"
    assert "4 epochs" in read.text


STRANGE = {
    "nothing": [],
    "one epoch": [{"loss": 0.5}],
    "not a number": [{"loss": 0.5}, {"loss": float("nan")}, {"loss": float("inf")}],
    "never a number": [{"loss": float("nan")}],
    "other things": [{"loss": 0.5, "text": "x", "list": [1], "none": None}],
    "arrays": [{"loss": np.float32(0.5), "one": np.ones(()), "more": np.ones(3)}],
    "names": [{"<b>φ</b>": 1.0, "val_<b>φ</b>": 2.0}],
    "many names": [{f"m{i}": 1.0 * i for i in range(40)}],
    "a huge range": [{"loss": 1e-30}, {"loss": 1e30}],
    "a constant": [{"loss": 0.0}] * 3,
}


@pytest.mark.parametrize("case", STRANGE)
def test_whatever_is_logged_can_be_shown(model, drive, case):
    history = History()
    drive([history], model, STRANGE[case])
    read = Page(history._repr_html_()).check()
    assert "b" not in read.names
    assert not any("nan" in a.get("points", "") for a in read.attributes)
