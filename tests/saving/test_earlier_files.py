"""Files of an earlier version: read, with the same outputs, and trained further.

``fixtures/make.py`` wrote them before models and trainers were put together anew.
"""

import shutil

import numpy as np
import pytest
from tests.saving.fixtures.make import (
    FOLDER,
    IDS,
    OPTIONS,
    WIDE,
    X,
    Y,
    plain,
    run,
    run_model,
    whole,
)

import exburn
from exburn.callbacks import StateCheckpoint
from exburn.training.checkpoint import provenance

ANSWERS = np.load(FOLDER / "answers.npz")


def close(found, name, tolerance=1e-6):
    np.testing.assert_allclose(found, ANSWERS[name], rtol=tolerance, atol=tolerance)


def test_a_model_predicts_the_same():
    model = exburn.load_model(FOLDER / "whole.exburn")
    close(model.predict([X, IDS], verbose=0), "whole")
    assert model.optimizer.iterations > 0 and model.optimizer.use_ema


def test_the_training_of_a_model_goes_on():
    model = exburn.load_model(FOLDER / "whole.exburn")
    close(model.fit([X, IDS], Y, **OPTIONS).history["loss"], "whole/loss", 1e-5)
    close(model.predict([X, IDS], verbose=0), "whole/after", 1e-4)


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_weights_in_few_bits_are_read(mode):
    model = exburn.load_model(FOLDER / f"{mode}.exburn")
    assert model.get_layer("wide").quantization_mode == mode
    close(model.predict(WIDE, verbose=0), mode)


def test_weights_and_adapters_alone():
    model = plain()
    model.set_weights([np.zeros(w.shape) for w in model.get_weights()])
    model.load_weights(FOLDER / "plain.safetensors")
    close(model.predict(WIDE, verbose=0), "plain")
    model.add_lora(rank=2)
    assert model.load_lora(FOLDER / "adapters.safetensors")
    close(model.predict(WIDE, verbose=0), "adapters")


def test_weights_of_an_equal_model():
    model = whole()
    model.load_weights(FOLDER / "whole.safetensors")
    close(model.predict([X, IDS], verbose=0), "whole")


def test_an_interrupted_run_ends_as_one_that_was_not(tmp_path, monkeypatch):
    """The versions differ, as those of any two releases, so code may differ, too."""
    monkeypatch.setattr(provenance, "_versions", lambda: "a later one")
    folder = tmp_path / "checkpoint"
    shutil.copytree(FOLDER / "checkpoint", folder)
    model = run_model()
    history = run(model, StateCheckpoint(folder, save_freq=2), resume="auto")
    assert history.epoch == [0, 1, 2]
    close(history.history["loss"], "run/loss", 1e-5)
    close(model.predict(X, verbose=0), "run", 1e-4)


def test_keras_files_are_read_as_before():
    model = exburn.load_model(FOLDER / "stack.keras")
    close(model.predict(X, verbose=0), "keras")
    weights = [w * 0 for w in model.get_weights()]
    model.set_weights(weights)
    model.load_weights(FOLDER / "stack.weights.h5")
    close(model.predict(X, verbose=0), "keras")
    model = exburn.load_model(FOLDER / "stack.keras")
    options = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0}
    history = model.fit(X, X[:, :1], **options).history
    close(history["loss"], "keras/loss", 1e-5)
