"""Tests of ``exburn.callbacks.contract.monitor``."""

import types

import numpy as np
import pytest

from exburn import metrics
from exburn.callbacks import (
    EarlyStopping,
    ModelCheckpoint,
    MonitorCallback,
    ReduceLROnPlateau,
)
from exburn.errors import CallbackError

FALLING = "val_loss loss val_mean_squared_error mae out_1_loss binary_crossentropy \
kl_divergence hinge loss_2 accuracy_loss val_perplexity error_rate".split()

RISING = "accuracy val_acc auc_1 val_out_accuracy top_k_categorical_accuracy recall \
precision_at_recall f1_score r2_score cosine_similarity binary_io_u mean_io_u".split()

WATCHERS = [
    lambda monitor: EarlyStopping(monitor),
    lambda monitor: ReduceLROnPlateau(monitor),
    lambda monitor: ModelCheckpoint(
        "x.safetensors", monitor, save_best_only=True, save_weights_only=True
    ),
]


@pytest.mark.parametrize("name", FALLING + RISING)
def test_the_name_tells_the_direction(name):
    callback = MonitorCallback(name)
    assert callback.improves(1.0, 2.0) == (name in FALLING)
    assert callback.improves(2.0, 1.0) == (name in RISING)


def test_a_name_that_tells_nothing_needs_a_mode():
    with pytest.raises(CallbackError, match=r"'my_metric' does not tell(.|\n)*mode="):
        MonitorCallback("my_metric").improves(1.0, None)
    assert MonitorCallback("my_metric", mode="max").improves(2.0, 1.0)


def test_a_metric_tells_its_own_direction():
    class Gap(metrics.Mean):
        direction = "down"

    model = types.SimpleNamespace(metrics=[metrics.AUC(), Gap(name="score")])
    for name, improved in (("auc", True), ("val_score", False), ("f1", True)):
        callback = MonitorCallback(name)
        callback.set_model(model)
        assert callback.improves(2.0, 1.0) == improved, name


def test_other_modes_are_refused():
    with pytest.raises(CallbackError, match="mode must be"):
        MonitorCallback("loss", mode="maximum")


def test_min_delta_counts_in_both_directions():
    falling = MonitorCallback("loss", min_delta=0.125)
    assert falling.improves(0.5, 0.75) and not falling.improves(0.625, 0.75)
    rising = MonitorCallback("accuracy", min_delta=-0.125)
    assert rising.improves(0.75, 0.5) and not rising.improves(0.625, 0.5)


@pytest.mark.parametrize("make", WATCHERS)
def test_an_unknown_monitor_is_an_error_at_the_first_epochs_end(make, model, drive):
    rows = [{"loss": 1.0, "val_accuracy": 0.5}] * 3
    with pytest.raises(CallbackError) as caught:
        drive([make("val_acuracy")], model, rows)
    text = str(caught.value)
    assert "monitor 'val_acuracy' is not among the logged values" in text
    assert "available: loss, val_accuracy" in text
    assert "Did you mean 'val_accuracy'?" in text
    assert model.optimizer.iterations == 4  # one epoch


@pytest.mark.parametrize("make", WATCHERS)
def test_a_validation_monitor_needs_validation(make, model, drive):
    with pytest.raises(CallbackError, match=r"Pass validation_data(.|\n)*'loss'"):
        drive([make("val_loss")], model, [{"loss": 1.0}] * 3)


@pytest.mark.parametrize("make", WATCHERS)
def test_epochs_without_validation_are_skipped(make, model, drive):
    rows = [{"loss": 1.0}, {"loss": 1.0, "val_loss": 0.5}, {"loss": 1.0}]
    callback = make("val_loss")
    assert drive([callback], model, rows) == [0, 1, 2]
    assert callback.best == 0.5


def test_error_without_any_logs():
    with pytest.raises(CallbackError, match="available: nothing"):
        EarlyStopping("loss").on_epoch_end(0, {})


def test_an_array_cannot_be_monitored():
    with pytest.raises(CallbackError, match=r"array of shape \(3,\)"):
        EarlyStopping("loss").on_epoch_end(0, {"loss": np.zeros(3)})
