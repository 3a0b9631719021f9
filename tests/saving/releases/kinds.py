"""Files that a release writes, and what later ones must read from them.

A kind has a function that writes into a folder, and one that reads: both return arrays
by name, which must be the same. A kind that is added here is of the releases from then
on; what is written for one is never changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import exburn
from exburn import compression, layers

Arrays = dict[str, np.ndarray]
RNG = np.random.default_rng(0)
X = RNG.standard_normal((24, 6)).astype(np.float32)
IDS = RNG.integers(0, 9, (24, 5)).astype(np.int32)
Y = (X.sum(-1) > 0).astype(np.int32) + (IDS[:, 0] > 4)
WIDE = RNG.standard_normal((4, 64)).astype(np.float32)
WORDS = ["a red fox", "the red hen", "a grey fox and a hen"]
FIT = {"batch_size": 8, "epochs": 2, "verbose": 0}


class Kind(NamedTuple):
    """How files of a kind are written and read."""

    write: Callable[[Path], Arrays]
    read: Callable[[Path], Arrays]


# ------------------------------------------------------------------------ whole models
def functional():
    """Two inputs, several kinds of layers, an optimizer with averages."""
    x, ids = exburn.Input((6,), name="x"), exburn.Input((5,), dtype="int32", name="ids")
    dense = layers.BatchNormalization()(layers.Dense(5, activation="relu")(x))
    words = layers.LSTM(3)(layers.Embedding(9, 4, mask_zero=True)(ids))
    both = layers.Dropout(0.2)(layers.concatenate([dense, words]))
    head = layers.Dense(3, name="head", kernel_regularizer="l2")(both)
    model = exburn.Model([x, ids], head, name="functional")
    rule = exburn.optimizers.AdamW(0.01, use_ema=True, gradient_accumulation_steps=2)
    model.compile(rule, "cross_entropy", metrics=["accuracy"], seed=5)
    return model


def write_model(folder):
    model = functional()
    model.fit([X, IDS], Y, **FIT)
    model.save(folder / "model.exburn")
    return goes_on(model)


def read_model(folder):
    return goes_on(exburn.load_model(folder / "model.exburn"))


def goes_on(model):
    """What a model predicts now, and after it has trained further."""
    before = model.predict([X, IDS], verbose=0)
    loss = model.fit([X, IDS], Y, **FIT).history["loss"]
    return {"before": before, "loss": loss, "after": model.predict([X, IDS], verbose=0)}


def write_weights(folder):
    model = functional()
    model.save_weights(folder / "weights.safetensors")
    return {"prediction": model.predict([X, IDS], verbose=0)}


def read_weights(folder):
    model = functional()
    model.set_weights([np.zeros(w.shape) for w in model.get_weights()])
    assert model.load_weights(folder / "weights.safetensors").complete
    return {"prediction": model.predict([X, IDS], verbose=0)}


def write_words(folder):
    table = layers.TextVectorization(output_sequence_length=5)
    table.adapt(WORDS)
    model = exburn.Sequential(
        [
            exburn.Input((), dtype="string"),
            table,
            layers.Embedding(table.vocabulary_size(), 4),
            layers.GlobalAveragePooling1D(),
            layers.Dense(2),
        ]
    )
    model.compile("adam", "mse", seed=1)
    model.save(folder / "words.exburn")
    return predict_words(model)


def read_words(folder):
    return predict_words(exburn.load_model(folder / "words.exburn"))


def predict_words(model):
    return {"prediction": model.predict(np.array(WORDS), verbose=0)}


# ------------------------------------------------------------- small and adapted models
def stack():
    model = exburn.Sequential(
        [
            exburn.Input((64,)),
            layers.Dense(32, activation="relu", name="wide"),
            layers.Dense(3, name="head"),
        ],
        name="stack",
    )
    model.compile("sgd", "mse", seed=2)
    model.build()
    return model


def write_few_bits(folder):
    answers, model = {}, stack()
    for mode in ("int8", "int4", "float8"):
        small = model.quantize(mode)
        small.save(folder / f"{mode}.exburn")
        answers[mode] = small.predict(WIDE, verbose=0)
    return answers


def read_few_bits(folder):
    answers = {}
    for path in sorted(folder.glob("*.exburn")):
        model = exburn.load_model(path)
        assert model.get_layer("wide").quantization_mode == path.stem
        answers[path.stem] = model.predict(WIDE, verbose=0)
    return answers


def write_adapters(folder):
    model = stack()
    model.save(folder / "stack.exburn")
    model.add_lora(rank=2)
    model.fit(WIDE, WIDE[:, :3], epochs=3, verbose=0)
    model.save_lora(folder / "adapters.safetensors")
    return {"prediction": model.predict(WIDE, verbose=0)}


def read_adapters(folder):
    model = exburn.load_model(folder / "stack.exburn")
    model.add_lora(rank=2)
    assert model.load_lora(folder / "adapters.safetensors")
    return {"prediction": model.predict(WIDE, verbose=0)}


def write_pruned(folder):
    schedule = compression.ConstantSparsity()
    model = exburn.prune(stack(), sparsity=0.75, schedule=schedule)
    model.fit(WIDE, WIDE[:, :3], epochs=2, verbose=0)
    model.save(folder / "pruned.exburn")
    return stays_pruned(model)


def read_pruned(folder):
    return stays_pruned(exburn.load_model(folder / "pruned.exburn"))


def stays_pruned(model):
    before = model.predict(WIDE, verbose=0)
    model.fit(WIDE, WIDE[:, :3], epochs=2, verbose=0)
    zeros = compression.sparsity(model).total
    assert zeros == 0.75
    return {
        "before": before,
        "after": model.predict(WIDE, verbose=0),
        "zeros": np.float64(zeros),
    }


def write_rounded(folder):
    model = exburn.quantize_aware(stack(), "int8")
    model.fit(WIDE, WIDE[:, :3], epochs=2, verbose=0)
    model.save(folder / "rounded.exburn")
    return rounds(model)


def read_rounded(folder):
    return rounds(exburn.load_model(folder / "rounded.exburn"))


def rounds(model):
    return {
        "in training": model.predict(WIDE, verbose=0),
        "stored": model.quantize().predict(WIDE, verbose=0),
    }


# --------------------------------------------------------------------- runs of training
def runner():
    model = exburn.Sequential(
        [
            exburn.Input((6,)),
            layers.Dense(5, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.2),
            layers.Dense(3),
        ]
    )
    model.compile("adam", "cross_entropy", metrics=["accuracy"], seed=3)
    return model


class Stop(exburn.callbacks.Callback):
    """Interrupts the second epoch, in its middle."""

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == (1, 2):
            raise KeyboardInterrupt


def train(*callbacks, **options):
    options = {"batch_size": 4, "epochs": 3, "verbose": 0, **options}
    model = runner()
    history = model.fit(X, Y, callbacks=[*callbacks], **options)
    return {"loss": history.history["loss"], "after": model.predict(X, verbose=0)}


def checkpoint(folder):
    return exburn.callbacks.StateCheckpoint(
        folder / "checkpoint", save_freq=2, background=False
    )


def write_checkpoint(folder):
    try:
        train(checkpoint(folder), Stop())
    except KeyboardInterrupt:
        pass
    return train()


def read_checkpoint(folder):
    return train(checkpoint(folder), resume="auto")


def write_run(folder):
    train(run=folder / "run")
    (folder / "run" / "report.html").unlink()  # is made of the others
    path = folder / "run" / "environment.json"
    about = json.loads(path.read_text("utf-8"))
    about |= {"host": "there", "command": ["train.py"], "folder": "/there", "git": None}
    path.write_text(json.dumps(about, indent=1) + "\n", "utf-8")
    return read_run(folder)


def read_run(folder):
    record = exburn.runs.read(folder / "run")
    assert record.state == "finished" and record.metrics == ["loss", "accuracy"]
    losses = np.array([epoch["logs"]["loss"] for epoch in record.epochs])
    model = runner()
    model.load_checkpoint(folder / "run")
    return {"loss": losses, "after": model.predict(X, verbose=0)}


KINDS = {
    "model": Kind(write_model, read_model),
    "weights": Kind(write_weights, read_weights),
    "words": Kind(write_words, read_words),
    "few bits": Kind(write_few_bits, read_few_bits),
    "adapters": Kind(write_adapters, read_adapters),
    "pruned": Kind(write_pruned, read_pruned),
    "rounded": Kind(write_rounded, read_rounded),
    "checkpoint": Kind(write_checkpoint, read_checkpoint),
    "run": Kind(write_run, read_run),
}
