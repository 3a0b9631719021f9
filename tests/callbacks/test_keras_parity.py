"""The same logs through Keras' callbacks and ours."""

import random
import re

import numpy as np
import pytest

from exburn.callbacks import EarlyStopping, ModelCheckpoint, ReduceLROnPlateau

keras = pytest.importorskip("keras")

# Multiples of 1/8 are exact in float32, so that ties are ties on both sides.
GRID = [n / 8 for n in range(9)]


def sequence(rng):
    length = rng.randint(1, 10)
    names = rng.choice([("loss", "min"), ("accuracy", "max")])
    return names, [rng.choice(GRID) for _ in range(length)]


@pytest.mark.parametrize("seed", range(60))
def test_early_stopping(seed, make_model, drive):
    rng = random.Random(seed)
    (name, mode), values = sequence(rng)
    options = {
        "monitor": name,
        "mode": mode,
        "patience": rng.choice([0, 1, 2, 3]),
        "min_delta": rng.choice([0, 0, 0.125]),
        "baseline": rng.choice([None, None, 0.5]),
        "restore_best_weights": rng.choice([False, True]),
        "start_from_epoch": rng.choice([0, 0, 2]),
    }
    ours, our_model = EarlyStopping(**options), make_model()
    ran = drive([ours], our_model, [{name: value} for value in values])

    theirs, their_model = keras.callbacks.EarlyStopping(**options), make_model()
    theirs.set_model(their_model)
    theirs.on_train_begin()
    expected = []
    for epoch, value in enumerate(values):
        their_model.weights = [np.full(2, epoch + 1, np.float32)]
        expected.append(epoch)
        theirs.on_epoch_end(epoch, {name: value})
        if their_model.stop_training:
            break
    theirs.on_train_end()

    assert ran == expected, options
    for attribute in ("wait", "best", "best_epoch", "stopped_epoch"):
        assert getattr(ours, attribute) == getattr(theirs, attribute), options
    assert np.array_equal(our_model.weights[0], their_model.weights[0])


def test_a_subclass_computes_what_is_monitored(make_model, drive):
    logs = [{"loss": loss, "gap": 0.0} for loss in (1.0, 0.5, 0.75, 0.25)]
    results = []
    for base in (EarlyStopping, keras.callbacks.EarlyStopping):

        class Distance(base):
            def get_monitor_value(self, logs):
                return abs(logs["loss"] - 0.75)

        stopping = Distance(monitor="distance", mode="min", patience=1)
        stopping.set_model(make_model())
        stopping.on_train_begin()
        for epoch, log in enumerate(logs):
            stopping.on_epoch_end(epoch, log)
        results.append((stopping.stopped_epoch, stopping.best, stopping.best_epoch))
    assert results[0] == results[1] == (3, 0.0, 2)


@pytest.mark.parametrize("seed", range(60))
def test_reduce_lr_on_plateau(seed, make_model, drive):
    rng = random.Random(1000 + seed)
    (name, mode), values = sequence(rng)
    options = {
        "monitor": name,
        "mode": mode,
        "factor": rng.choice([0.5, 0.1]),
        "patience": rng.choice([1, 2, 3]),
        "min_delta": rng.choice([0, 0.125]),
        "cooldown": rng.choice([0, 0, 1, 2]),
        "min_lr": rng.choice([0.0, 0.03]),
    }
    our_model, their_model = make_model(), make_model()
    theirs = keras.callbacks.ReduceLROnPlateau(**options)
    theirs.set_model(their_model)
    theirs.on_train_begin()
    expected = []
    for epoch, value in enumerate(values):
        logs = {name: value}
        theirs.on_epoch_end(epoch, logs)
        expected.append(logs["learning_rate"])

    logged = []
    rows = [{name: value} for value in values]
    note = lambda logs: logged.append(logs["learning_rate"])  # noqa: E731
    drive([ReduceLROnPlateau(**options), note], our_model, rows)
    assert logged == pytest.approx(expected), options
    optimizer = our_model.optimizer
    assert optimizer.rate(0) == pytest.approx(their_model.optimizer.learning_rate)
    assert optimizer.learning_rate == 0.1


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
