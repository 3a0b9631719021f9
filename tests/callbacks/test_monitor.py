"""EarlyStopping, ModelCheckpoint, and the monitors they share with the plateau."""

import json
import types

import numpy as np
import pytest

from exburn import metrics
from exburn.callbacks import (
    CallbackList,
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


WATCHERS = [
    lambda monitor: EarlyStopping(monitor),
    lambda monitor: ReduceLROnPlateau(monitor),
    lambda monitor: ModelCheckpoint(
        "x.safetensors", monitor, save_best_only=True, save_weights_only=True
    ),
]


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


def losses(*values, name="loss"):
    return [{name: value} for value in values]


def test_early_stopping_restores_weights_and_facts_of_the_best_epoch(
    model, drive, capsys
):
    stopping = EarlyStopping("loss", patience=2, restore_best_weights=True, verbose=1)
    rows = [{"loss": v, "accuracy": 1 - v} for v in (0.9, 0.5, 0.6, 0.7, 0.1)]
    assert drive([stopping], model, rows) == [0, 1, 2, 3]
    assert model.weights[0].tolist() == [2, 2]
    assert (stopping.best, stopping.best_epoch, stopping.stopped_epoch) == (0.5, 1, 3)
    assert stopping.best_logs == {"loss": 0.5, "accuracy": 0.5}
    assert capsys.readouterr().out == (
        "Epoch 4: early stopping\nRestoring the weights of the best epoch: 2\n"
    )


def test_early_stopping_restores_also_when_it_did_not_stop(model, drive):
    stopping = EarlyStopping("loss", patience=9, restore_best_weights=True)
    drive([stopping], model, losses(0.9, 0.5, 0.6))
    assert stopping.stopped_epoch == 0 and model.weights[0].tolist() == [2, 2]


def test_best_weights_do_not_follow_a_buffer_that_is_reused(model):
    buffer = np.ones(3, np.float32)
    model.get_weights = lambda: [buffer[:]]
    stopping = EarlyStopping("loss", restore_best_weights=True)
    stopping.set_model(model)
    stopping.on_epoch_end(0, {"loss": 1.0})
    buffer[:] = 7
    assert stopping.best_weights[0].tolist() == [1, 1, 1]


def test_nan_is_never_the_best(model, drive):
    stopping = EarlyStopping("loss", patience=3, restore_best_weights=True)
    nan = float("nan")
    drive([stopping], model, losses(nan, 0.5, nan, 0.4, 0.6))
    assert stopping.best == 0.4 and model.weights[0].tolist() == [4, 4]


def test_a_second_fit_starts_afresh(model, drive):
    stopping = EarlyStopping("loss", patience=1)
    assert drive([stopping], model, losses(0.1, 0.2, 0.3)) == [0, 1]
    model.stop_training = False
    assert drive([stopping], model, losses(0.9, 0.8, 0.7)) == [0, 1, 2]


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
@pytest.mark.parametrize("restore", [False, True])
def test_a_resumed_run_stops_as_the_uninterrupted(cut, restore, make_model, drive):
    rows = losses(0.9, 0.5, 0.6, 0.55, 0.7, 0.2)

    def stopping():
        return EarlyStopping("loss", patience=3, restore_best_weights=restore)

    whole, whole_model = stopping(), make_model()
    drive([whole], whole_model, rows)
    first, model = CallbackList([stopping()]), make_model()
    for epoch, row in enumerate(rows[:cut]):  # killed: no on_train_end
        first.set_model(model)
        model.weights = [np.full(2, epoch + 1, np.float32)]
        first.on_epoch_end(epoch, row)
    resumed, model = stopping(), make_model()
    callbacks = CallbackList([resumed])
    callbacks.load_state_dict(first.state_dict())
    drive(callbacks, model, rows[cut:], start=cut)
    for name in ("best", "best_epoch", "best_logs", "stopped_epoch", "wait"):
        assert getattr(resumed, name) == getattr(whole, name)
    assert np.array_equal(model.weights[0], whole_model.weights[0])
    assert resumed.stopped_epoch == 4


def test_plateau_state_round_trips_through_json(make_model, drive):
    rows = losses(0.9, 0.9, 0.9, 0.9, 0.9, 0.5, 0.5, 0.5, 0.5)

    def plateau():
        return ReduceLROnPlateau("loss", factor=0.5, patience=2, cooldown=1)

    whole = make_model()
    drive([plateau()], whole, rows)
    for cut in range(1, len(rows)):
        model = make_model()
        first = plateau()
        drive([first], model, rows[:cut])
        resumed = plateau()
        resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
        drive([resumed], model, rows[cut:], start=cut)
        assert model.optimizer.values["scale"] == whole.optimizer.values["scale"]
    assert whole.optimizer.values["scale"] == 0.125


def checkpoint(path="w.safetensors", **options):
    return ModelCheckpoint(path, save_weights_only=True, **options)


def test_checkpoint_writes_every_epoch_and_formats_names(model, drive, tmp_path):
    path = tmp_path / "runs" / "{epoch:02d}-{val_loss:.2f}.safetensors"
    callback = checkpoint(path)
    drive([callback], model, losses(0.5, 0.254, 0.3, name="val_loss"))
    names = ["01-0.50", "02-0.25", "03-0.30"]
    assert model.saved == [str(tmp_path / "runs" / f"{n}.safetensors") for n in names]
    assert (tmp_path / "runs").is_dir()
    assert callback.last_path == model.saved[-1]


def test_checkpoint_keeps_the_best_only(model, drive, capsys):
    callback = checkpoint(
        monitor="loss", save_best_only=True, verbose=1, initial_value_threshold=0.6
    )
    drive([callback], model, losses(0.9, 0.5, 0.7, 0.4))
    assert len(model.saved) == 2 and callback.best == 0.4
    assert capsys.readouterr().out.splitlines() == [
        "Epoch 1: loss did not improve on 0.60000",
        "Epoch 2: loss improved from 0.60000 to 0.50000, saved to w.safetensors",
        "Epoch 3: loss did not improve on 0.50000",
        "Epoch 4: loss improved from 0.50000 to 0.40000, saved to w.safetensors",
    ]
    again = checkpoint(monitor="loss", save_best_only=True)
    again.load_state_dict(json.loads(json.dumps(callback.state_dict())))
    drive([again], model, losses(0.45), start=4)
    assert len(model.saved) == 2 and again.last_path == "w.safetensors"


def test_checkpoint_ignores_the_monitor_where_it_saves_always(model, drive):
    drive([checkpoint(monitor="nonsense")], model, losses(0.5))
    assert model.saved == ["w.safetensors"]


@pytest.mark.parametrize(
    ("save_freq", "saves"),
    [
        (1, ["1-1", "1-2", "1-3", "1-4", "2-1", "2-2", "2-3", "2-4"]),
        (2, ["1-2", "1-4", "2-2", "2-4"]),
        (3, ["1-3", "2-3"]),  # 3 batches, then 4 have passed
        (4, ["1-4", "2-4"]),
        (6, ["2-4"]),  # at the end of the epoch in which 6 have passed
        (9, []),
    ],
)
def test_checkpoint_after_a_number_of_batches(save_freq, saves, model, drive):
    callback = checkpoint("{epoch}-{batch}.safetensors", save_freq=save_freq)
    assert CallbackList([callback]).batch_interval() == save_freq
    drive([callback], model, losses(0.5, 0.4))
    assert model.saved == [f"{name}.safetensors" for name in saves]


def test_checkpoint_after_epochs_asks_for_no_batch_hooks():
    assert CallbackList([checkpoint()]).batch_interval() is None


def test_checkpoint_saves_the_whole_model_where_it_can(model, drive):
    whole = []
    model.save = whole.append
    drive([ModelCheckpoint("m.safetensors")], model, losses(0.5))
    assert whole == ["m.safetensors"] and model.saved == []


def test_checkpoint_explains_a_model_that_has_weights_only(model):
    with pytest.raises(
        CallbackError, match=r"only its weights(.|\n)*weights_only=True"
    ):
        CallbackList([ModelCheckpoint("m.safetensors")], model=model)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"filepath": "best.weights.h5"}, "must end in '.exburn' or '.keras'"),
        (
            {"filepath": "best.exburn", "save_weights_only": True},
            "must end in '.safetensors' or '.weights.h5'",
        ),
        ({"filepath": "{epoch}/"}, "no placeholders"),
        ({"filepath": "{epoch.safetensors"}, "malformed"),
        ({"filepath": "a.safetensors", "save_freq": 0}, "save_freq must be"),
        ({"filepath": "a.safetensors", "save_freq": "batch"}, "save_freq must be"),
        ({"filepath": "a.safetensors", "save_freq": True}, "save_freq must be"),
        ({"filepath": "a.safetensors", "save_freq": 2.5}, "save_freq must be"),
    ],
)
def test_checkpoint_arguments(arguments, message):
    with pytest.raises(CallbackError, match=message):
        ModelCheckpoint(**arguments)


def test_checkpoint_names_that_cannot_be_made(model, drive, tmp_path):
    with pytest.raises(CallbackError, match=r"'val_los'(.|\n)*available: epoch, loss"):
        drive([checkpoint("{val_los:.2f}.safetensors")], model, losses(0.5))
    with pytest.raises(CallbackError, match="cannot be made: ValueError"):
        drive([checkpoint("{loss:d}.safetensors")], model, losses(0.5))
    (tmp_path / "w.safetensors").mkdir()
    with pytest.raises(CallbackError, match="a folder is in the file's place"):
        drive([checkpoint(tmp_path / "w.safetensors")], model, losses(0.5))
