"""Tests of ``exburn.callbacks.model_checkpoint``."""

import json
import re

import pytest
from tests.golden import keras

from exburn.callbacks import CallbackList, ModelCheckpoint
from exburn.errors import CallbackError


def losses(*values, name="loss"):
    return [{name: value} for value in values]


def checkpoint(path="w.safetensors", **options):
    return ModelCheckpoint(path, save_weights_only=True, **options)


@pytest.mark.parametrize("best", [False, True])
@pytest.mark.parametrize(
    ("name", "save_freq"),
    [
        ("w", "epoch"),
        ("{epoch:02d}-{val_loss:.2f}", "epoch"),
        ("{epoch}-{loss:.3f}", "epoch"),
        ("{epoch:03d}/{batch:02d}", 3),
        ("{epoch:03d}/{batch:02d}", 5),
    ],
)
def test_model_checkpoint_names(name, save_freq, best, make_model, tmp_path):
    rows = [
        {"loss": loss, "val_loss": loss / 2} for loss in (0.5, 0.375, 0.5, 0.25, 0.125)
    ]
    saved = {}
    for cls, suffix in (
        (ModelCheckpoint, ".safetensors"),
        (keras.callbacks.ModelCheckpoint, ".weights.h5"),
    ):
        model = make_model()
        callback = cls(
            tmp_path / (name + suffix),
            monitor="loss",
            mode="min",
            save_best_only=best,
            save_weights_only=True,
            save_freq=save_freq,
        )
        callback.set_model(model)
        callback.on_train_begin()
        for epoch, row in enumerate(rows):  # every batch, as Keras calls it
            callback.on_epoch_begin(epoch)
            for batch in range(4):
                callback.on_train_batch_end(batch, row)
            callback.on_epoch_end(epoch, row)
        saved[suffix] = [
            re.sub(r"\.(safetensors|weights\.h5)$", "", p) for p in model.saved
        ]
    ours, theirs = saved.values()
    assert ours == theirs and ours


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
