"""What losses and metrics of several outputs are called, beside Keras."""

import numpy as np
import pytest
from tests.golden import keras as peer
from tests.training.objective.outputs import (
    BY_NAME,
    X,
    Y,
    functional,
    logs,
    named,
    subclass,
)

import exburn


def worst(y_true, y_pred):
    return abs(y_true - y_pred).max(axis=-1)


CASES = [
    (functional, list, Y, {"loss": "mse"}),
    (functional, tuple, Y, {"loss": ["mse", None], "metrics": [None, "mae"]}),
    (functional, list, Y, {"loss": "mse", "metrics": [["mse", "mae"], ["mae"]]}),
    (functional, list, Y, {"loss": {"a": "mse", "b": "mae"}, "metrics": {"b": "mse"}}),
    (
        functional,
        list,
        Y,
        {"loss": "mse", "metrics": ["mae", "mae"], "weighted_metrics": ["mae", "mse"]},
    ),
    (functional, named, BY_NAME, {"loss": {"z": "mse", "y": "mae"}, "metrics": {}}),
    (functional, named, BY_NAME, {"loss": ["mse", "mae"], "metrics": ["mae", "mse"]}),
    (subclass, tuple, Y, {"loss": ["mse", "mean_absolute_error"]}),
    (subclass, list, Y, {"loss": ["mse", "mae"], "metrics": ["mse", "mae"]}),
    (subclass, tuple, Y, {"loss": ["mse", None], "metrics": [["mae", "mse"], ["mae"]]}),
    (subclass, tuple, Y, {"loss": [worst, "huber"], "metrics": [worst, "acc"]}),
    (subclass, named, BY_NAME, {"loss": {"z": "mse", "y": "mae"}, "metrics": {}}),
    (subclass, named, BY_NAME, {"loss": "mse", "metrics": {"z": ["mae", "mse"]}}),
]


@pytest.mark.parametrize(("make", "outputs", "targets", "settings"), CASES)
def test_the_names_and_their_order_are_those_of_keras(
    make, outputs, targets, settings, golden
):
    ours, our_list = logs(exburn, make, outputs, targets, settings)
    theirs, their_list = golden(lambda: logs(peer(), make, outputs, targets, settings))
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-5, err_msg=name)
    if len(their_list) == len(theirs) and "mae_1" not in theirs:
        np.testing.assert_allclose(our_list, their_list, rtol=1e-5)


def test_losses_are_called_by_the_name_of_an_object_or_of_the_class_given():
    losses = [exburn.losses.MeanSquaredError(name="mine"), "MeanAbsoluteError"]
    ours, _ = logs(exburn, subclass, tuple, Y, {"loss": losses})
    assert list(ours) == ["loss", "mine_loss", "mean_absolute_error_loss"]


def test_a_metric_may_be_called_as_the_only_loss_would_be():
    def mse_loss(y, y_pred):
        return ((y - y_pred) ** 2).mean(-1)

    model = exburn.Sequential([exburn.Input((3,)), exburn.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=[mse_loss])
    history = model.fit(X, Y[0], verbose=0, validation_data=(X, Y[0])).history
    assert list(history) == ["loss", "mse_loss", "val_loss", "val_mse_loss"]
    assert history["mse_loss"] == pytest.approx(history["loss"])


def test_losses_of_one_name_are_numbered():
    ours, _ = logs(exburn, subclass, tuple, Y, {"loss": "mse"})
    assert list(ours) == ["loss", "mse_loss", "mse_loss_1"]
    assert ours["loss"] == pytest.approx(ours["mse_loss"] + ours["mse_loss_1"])


def test_callbacks_monitor_these_names():
    model = subclass(exburn, tuple)
    model.compile("sgd", loss=["mse", "mae"], metrics=["mae", "mse"])
    stop = exburn.callbacks.EarlyStopping(monitor="val_mae_loss", patience=1)
    record = model.fit(
        X, tuple(Y), validation_data=(X, Y), epochs=2, verbose=0, callbacks=[stop]
    )
    assert "val_mae_loss" in record.history
