"""``fit`` and ``evaluate`` of chats and documents, packed into rows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.distribution.devices import on_devices

import exburn
from exburn import layers
from exburn.applications import GPT2, Llama
from exburn.callbacks import ModelCheckpoint
from exburn.errors import ArgumentError, CheckpointError, DataError
from exburn.models.generation.scoring import window_length
from exburn.text import CHATML, Document, PackedDocuments, Tokenizer, pack

LENGTH = 24
RNG = np.random.default_rng(0)
DOCUMENTS = [
    Document(RNG.integers(1, 40, n), np.arange(n) >= n // 3)
    for n in RNG.integers(2, LENGTH, 40)
]
PACKED = PackedDocuments(DOCUMENTS, LENGTH)
CHATS = [
    [
        {"role": "user", "content": "so " * (n % 4 + 1)},
        {"role": "assistant", "content": "it was " * (n % 3 + 1)},
    ]
    for n in range(12)
]
OPTIONS = {"batch_tokens": 4 * LENGTH, "verbose": 0}


def llama(**options):
    exburn.utils.set_random_seed(1)
    model = Llama(300, layers=1, width=8, heads=2, mlp_width=16)
    model.compile(exburn.optimizers.Adam(1e-2), **options)
    return model


def tokenizer():
    special = ["<|im_start|>", "<|im_end|>"]
    made = Tokenizer.train(["so it is, so it was"] * 9, 270, special=special)
    return made.with_chat_template(CHATML)


def test_chats_are_learnt():
    model = llama()
    model.tokenizer = tokenizer()
    options = {"batch_tokens": 256, "length": 64, "verbose": 0}
    history = model.fit(CHATS, epochs=3, validation_split=0.25, **options)
    loss, validation = history.history["loss"], history.history["val_loss"]
    assert loss[2] < loss[0] and validation[2] < validation[0]
    packing = history.params["packing"]
    assert packing["documents"] == 9 and 0.8 < packing["fill_rate"] <= 1
    assert history.params["accumulate"] == "tokens"
    answers = model.evaluate(CHATS, **options)
    assert answers != model.evaluate(CHATS, train_on="all", **options)
    packed = pack(CHATS, model.tokenizer, 64, cache=False)
    np.testing.assert_allclose(model.evaluate(packed, **options), answers, rtol=1e-6)


def test_the_loss_is_the_mean_over_counted_tokens():
    model, some = llama(), DOCUMENTS[:6]
    rows = np.array([np.pad(one.tokens, (0, LENGTH - len(one))) for one in some])
    targets = np.pad(rows[:, 1:], ((0, 0), (0, 1)))
    counted = [np.pad(one.counted[1:], (0, LENGTH + 1 - len(one))) for one in some]
    losses = exburn.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="none"
    )(targets, model.predict(rows, verbose=0))
    score = model.evaluate(some, length=LENGTH, **OPTIONS)
    mean = np.asarray(losses)[np.array(counted)].mean()
    np.testing.assert_allclose(score, mean, rtol=1e-5)


def test_batches_of_other_sizes_measure_the_same():
    model = llama()
    scores = [
        model.evaluate(PACKED.with_length(length), batch_tokens=tokens, verbose=0)
        for length, tokens in ((24, 24), (24, 96), (30, 60))
    ]
    np.testing.assert_allclose(scores, scores[0], rtol=1e-5)


def test_the_line_that_fit_prints(capsys):
    llama().fit(PACKED, batch_tokens=96, verbose=2)
    first, *_, last = capsys.readouterr().out.splitlines()
    assert " tokens/s" in last and "samples/s" not in last
    rows, share = PACKED.rows, PACKED.fill_rate
    assert first == f"40 documents: {PACKED.tokens:,} tokens, {rows} rows of 24, " + (
        f"{share:.1%} filled"
    )


def test_accumulated_batches_are_one_large_one():
    large = llama()
    large.fit(PACKED, batch_tokens=96, epochs=2, shuffle=False, verbose=0)
    small = llama(accumulate_gradients=4)
    small.fit(PACKED, batch_tokens=24, epochs=2, shuffle=False, verbose=0)
    for one, other in zip(large.get_weights(), small.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


def trained(mesh=None):
    model = llama(**({} if mesh is None else {"mesh": mesh}))
    history = model.fit(PACKED, epochs=2, **OPTIONS)
    return [*history.history["loss"], model.evaluate(PACKED, **OPTIONS)]


@pytest.mark.parametrize("mesh", ["data", "fsdp"])
@on_devices
def test_on_meshes(mesh):
    np.testing.assert_allclose(trained(mesh), trained(), rtol=1e-5)


class Stop(exburn.callbacks.Callback):
    """Ends a training at a step."""

    def __init__(self, at):
        self.at = at

    def on_train_batch_end(self, batch, logs=None):
        if self.model.optimizer.iterations == self.at:
            raise KeyboardInterrupt


def test_a_run_that_is_resumed_within_an_epoch_ends_as_the_other(tmp_path):
    def fit(folder, at=-1):
        model = llama()
        saver = ModelCheckpoint(tmp_path / folder, save_freq=2)
        callbacks = [saver, Stop(at)]
        options = {"epochs": 3, "callbacks": callbacks, "resume": "auto", **OPTIONS}
        model.fit(PACKED, **options)
        return model.get_weights()

    with pytest.raises(KeyboardInterrupt):
        fit("stopped", 9)
    for one, other in zip(fit("whole"), fit("stopped"), strict=True):
        np.testing.assert_array_equal(one, other)


CHANGED = {
    "a token": lambda: PackedDocuments(
        [*DOCUMENTS[:-1], Document(DOCUMENTS[-1].tokens + 1, DOCUMENTS[-1].counted)],
        LENGTH,
    ),
    "what is counted": lambda: PackedDocuments(
        [Document(d.tokens, ~d.counted) for d in DOCUMENTS], LENGTH
    ),
    "their order": lambda: PackedDocuments(DOCUMENTS[::-1], LENGTH),
    "the rows": lambda: PACKED.with_length(LENGTH + 1),
}


@pytest.mark.parametrize("name", CHANGED)
def test_other_data_are_an_error_that_names_them(name, tmp_path):
    llama().fit(PACKED, callbacks=[ModelCheckpoint(tmp_path)], **OPTIONS)
    with pytest.raises(CheckpointError, match="x: other values"):
        llama().fit(CHANGED[name](), epochs=2, resume=tmp_path, **OPTIONS)


KILLED = """
import os, signal, sys
import numpy as np
from exburn.callbacks import Callback, ModelCheckpoint
from tests.models.test_packing import OPTIONS, PACKED, llama

class Kill(Callback):
    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)

model = llama()
callbacks = [ModelCheckpoint(sys.argv[1], save_freq=2), Kill()]
model.fit(PACKED, epochs=3, callbacks=callbacks, resume="auto", **OPTIONS)
np.savez(sys.argv[3], *model.get_weights())
"""


def test_killed_within_an_epoch_it_ends_with_the_same_bytes(tmp_path):
    def run(folder, at, result):
        return subprocess.run(
            [sys.executable, "-P", "-c", KILLED, tmp_path / folder, str(at), result],
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
        )

    whole, resumed = tmp_path / "whole.npz", tmp_path / "resumed.npz"
    done = run("whole", -1, whole)
    assert done.returncode == 0, done.stderr[-2000:]
    for at in (5, 11):
        assert run("killed", at, resumed).returncode == -9
    done = run("killed", -1, resumed)
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(whole) as one, np.load(resumed) as other:
        assert {*one} == {*other}
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


def test_what_takes_loaders_takes_them():
    assert llama().predict(PACKED, verbose=0).shape == (PACKED.rows, LENGTH, 300)
    over = {"learning_rate": [1e-2, 1e-1]}
    lanes = exburn.sweep(llama(), PACKED, over=over, epochs=1, verbose=0)
    alone = llama().fit(PACKED, verbose=0).history["loss"]
    np.testing.assert_allclose(lanes.rows()[0]["loss"], alone[0], rtol=1e-5)


def no_loss():
    inputs = exburn.Input((None,), dtype="int32")
    h = layers.Embedding(300, 4)(inputs)
    model = exburn.Model(inputs, layers.Dense(300)(h))
    model.compile("sgd")
    return model


def of_one_number():
    model = llama(loss=exburn.losses.MeanSquaredError(reduction="sum"))
    return model


def short():
    model = GPT2(300, layers=1, width=8, heads=2, positions=10)
    model.compile("sgd")
    return model


def two_inputs():
    inputs = [exburn.Input((None,), dtype="int32") for _ in range(2)]
    model = exburn.Model(inputs, layers.Embedding(300, 4)(inputs[0]))
    model.compile("sgd", "mse")
    return model


def bad(text, error=ArgumentError, make=llama, x=PACKED, **options):
    return make, x, options, error, text


BAD_CALLS = {
    "a small batch": bad("must be at least a row, 24 tokens", batch_tokens=23),
    "rows": bad("batch_size is not taken", batch_size=4, batch_tokens=96),
    "validation rows": bad("validation_batch_size is not", validation_batch_size=4),
    "targets": bad("y is not taken", y=np.zeros(40)),
    "weights": bad("sample_weight is not taken", sample_weight=np.ones(40)),
    "class weights": bad("class_weight is not taken", class_weight={0: 1.0}),
    "resident": bad("resident is not taken", resident=True),
    "train_on": bad("these are already", train_on="all"),
    "a zero": bad("batch_tokens", batch_tokens=0),
    "a length alone": bad("batch_tokens is not given", x=np.ones((4, 3)), length=3),
    "chats, no tokenizer": bad("it has none", x=CHATS, batch_tokens=96),
    "no loss": bad("there is no loss", make=no_loss),
    "a sum": bad("which does not", make=of_one_number),
    "inputs": bad("one input of tokens", make=two_inputs),
    "a split": bad("of 40 documents leaves", DataError, validation_split=0.999),
    "nothing counted": bad(
        "counts none", DataError, x=[Document([1, 2], [True, False])]
    ),
    "the context": bad(
        "longer than a row of 10", DataError, make=short, x=DOCUMENTS, batch_tokens=40
    ),
    "the validation": bad(
        "in the validation data",
        DataError,
        validation_data=[Document(np.arange(1, 99))],
    ),
    "a table": bad("the ids in x must be", DataError, x=[Document([1, 999])]),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls(name):
    make, x, options, error, text = BAD_CALLS[name]
    model = make()
    with pytest.raises(error, match=text):
        model.fit(x, **{"verbose": 0} | options)
    assert not model.trace_counts  # nothing was compiled


def test_evaluate_refuses_alike():
    for options in ({"batch_size": 4}, {"y": np.ones(4)}, {"batch_tokens": 3}):
        with pytest.raises(ArgumentError):
            llama().evaluate(PACKED, verbose=0, **options)


def test_bad_chats_are_told_by_row():
    model = llama()
    model.tokenizer = tokenizer()
    rows = [*CHATS[:3], [{"role": "user", "content": "so"}]]
    with pytest.raises(DataError, match="row 3: there is no answer"):
        model.fit(rows, batch_tokens=96, verbose=0)
    assert not model.trace_counts


def test_the_history_is_json():
    history = llama().fit(PACKED, **OPTIONS)
    assert json.loads(json.dumps(history.params["packing"]))["length"] == LENGTH


def test_the_context_that_a_folder_tells_is_kept(tmp_path):
    """Positions of a rotary model have no end, but its training had one."""
    sizes = {"layers": 1, "width": 8, "heads": 2, "mlp_width": 16}
    Llama(300, **sizes).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    told = json.loads(path.read_text()) | {"max_position_embeddings": 16}
    path.write_text(json.dumps(told))
    model = Llama.from_pretrained(tmp_path)
    assert model.context_length == 16
    model.compile("sgd")
    with pytest.raises(DataError, match="longer than a row of 16 tokens"):
        model.fit(DOCUMENTS, **OPTIONS)
    model.tokenizer = tokenizer()
    with pytest.raises(DataError, match="more than the 16 allowed"):
        model.fit([[CHATS[0][0], CHATS[0][1] | {"content": "it was " * 20}]], **OPTIONS)
    assert window_length(model, None, "op") == 16
    assert window_length(model, LENGTH, "op") == LENGTH
    history = model.fit(DOCUMENTS, **OPTIONS, length=LENGTH)  # as the user says
    assert history.params["packing"]["length"] == LENGTH
