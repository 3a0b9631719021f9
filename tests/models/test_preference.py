"""Losses of preferences in ``fit``, beside what trl logs (``trl/record.py``)."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import optax
import pytest
from tests.distribution.devices import on_devices

import exburn
from exburn import applications, losses
from exburn.applications import Llama
from exburn.callbacks import ModelCheckpoint
from exburn.errors import ArgumentError, CheckpointError, DataError
from exburn.runtime.kernels import head_loss
from exburn.saving.weight_sources import read_weights
from exburn.text import Document, DocumentPair, PackedDocuments, PackedPairs

FOLDER = Path(__file__).with_name("trl")
BASE = Path(__file__).parents[1] / "applications" / "peft" / "llama"
CASES = {
    "dpo_sigmoid": losses.DPO(),
    "dpo_hinge": losses.DPO(2.0, "hinge"),
    "dpo_robust": losses.DPO(loss_type="robust", label_smoothing=0.2),
    "dpo_exo_pair": losses.DPO(loss_type="exo_pair", label_smoothing=0.1),
    "dpo_nca_pair": losses.DPO(loss_type="nca_pair"),
    "dpo_bco_pair": losses.DPO(loss_type="bco_pair"),
    "dpo_sppo_hard": losses.DPO(loss_type="sppo_hard"),
    "dpo_apo_zero": losses.DPO(0.4, "apo_zero"),
    "dpo_apo_down": losses.DPO(loss_type="apo_down"),
    "dpo_ipo": losses.IPO(0.3),
    "kto": losses.KTO(0.5, desirable_weight=1.5, undesirable_weight=0.7),
    "orpo": losses.ORPO(0.5),
}


def recorded(case):
    with np.load(FOLDER / f"{case}.npz") as file:
        arrays = dict(file)
    ends = np.cumsum(arrays["lengths"])[:-1]
    parts = (np.split(arrays[name], ends) for name in ("tokens", "counted"))
    documents = [Document(*one) for one in zip(*parts, strict=True)]
    pairs = list(map(DocumentPair, documents[::2], documents[1::2]))
    return PackedPairs(pairs, 48, labels=arrays.get("labels")), arrays


@pytest.mark.parametrize("case", CASES)
def test_the_steps_are_those_of_trl(case, tmp_path):
    pairs, expected = recorded(case)
    model = applications.from_pretrained(BASE, generation=None)
    model.load_adapter(FOLDER / "adapter")
    model.compile(optax.adam(1e-2, eps=1e-7), loss=CASES[case])
    history = model.fit(pairs, epochs=4, batch_tokens=4 * 48, verbose=0).history
    names = [name for name in expected if name in history]
    assert {"loss", *CASES[case].figures} == {*names}
    for name in names:
        np.testing.assert_allclose(
            history[name], expected[name], rtol=1e-4, atol=1e-4, err_msg=name
        )
    model.save_adapter(tmp_path / "after")
    with read_weights(tmp_path / "after" / "adapter_model.safetensors") as weights:
        for name in weights:
            after = expected[f"after/{name}"]
            np.testing.assert_allclose(weights[name], after, atol=1e-4, err_msg=name)


RNG = np.random.default_rng(0)


def answer(prompt, label=None):
    tokens = np.concatenate([prompt, RNG.integers(1, 40, RNG.integers(2, 8))])
    return Document(tokens, np.arange(len(tokens)) >= len(prompt), label)


PROMPTS = [RNG.integers(1, 40, RNG.integers(2, 6)) for _ in range(40)]
PAIRS = [DocumentPair(answer(prompt), answer(prompt)) for prompt in PROMPTS]
ANSWERS = [answer(prompt, bool(n % 3)) for n, prompt in enumerate(PROMPTS)]
OPTIONS = {"batch_tokens": 128, "length": 32, "verbose": 0}


def llama(loss="dpo", adapter=True, words=300, **options):
    exburn.utils.set_random_seed(1)
    model = Llama(words, layers=1, width=8, heads=2, mlp_width=16)
    if adapter:
        model.add_lora(rank=2, filter="block_*")
    loss = losses.DPO() if loss == "dpo" else loss
    model.compile(exburn.optimizers.Adam(1e-2), loss=loss, **options)
    return model


def test_pairs_are_learnt():
    model = llama()
    history = model.fit(PAIRS, epochs=12, validation_split=0.25, **OPTIONS)
    assert history.params["packing"]["pairs"] == 30
    rows = history.history
    assert rows["loss"][-1] < rows["loss"][0] and "val_rewards/margins" in rows
    assert rows["rewards/accuracies"][-1] > 0.8 > rows["rewards/accuracies"][0]
    margins = np.subtract(rows["rewards/chosen"], rows["rewards/rejected"])
    np.testing.assert_allclose(rows["rewards/margins"], margins, atol=1e-6)
    logs = model.evaluate(PAIRS, return_dict=True, **OPTIONS)
    assert [*logs] == ["loss", *losses.DPO.figures]
    other = model.evaluate(PAIRS, return_dict=True, **OPTIONS | {"length": 48})
    for name in logs:
        np.testing.assert_allclose(other[name], logs[name], rtol=1e-4, atol=1e-6)


def test_scores_are_not_made_where_the_vocabulary_is_large(monkeypatch):
    def fit(loss, data):
        model = llama(loss, words=1024)
        logs = model.fit(data, epochs=2, **OPTIONS).history
        return np.concatenate([np.ravel(one) for one in model.get_weights()]), logs

    cases = (losses.DPO(), PAIRS), (losses.KTO(), ANSWERS), (losses.ORPO(), PAIRS)
    plain = [fit(*case) for case in cases]
    for name, value in (("SCORES", 1), ("CHUNK", 1)):
        monkeypatch.setattr(head_loss, name, {"cpu": value, "gpu": value})
    monkeypatch.setattr(head_loss, "ROWS", (16, 32))
    calls = []
    counted = head_loss.head_cross_entropy

    def watch(*args, **kwargs):
        calls.append(args)
        return counted(*args, **kwargs)

    monkeypatch.setattr(head_loss, "head_cross_entropy", watch)
    for case, (weights, logs) in zip(cases, plain, strict=True):
        other, others = fit(*case)
        np.testing.assert_allclose(other, weights, atol=2e-5)
        np.testing.assert_allclose(others["loss"], logs["loss"], rtol=1e-5)
    assert calls


def test_a_reference_may_be_another_model_or_this_one_as_it_is():
    first = llama().fit(PAIRS, epochs=2, **OPTIONS).history
    kept = llama().fit(PAIRS, epochs=2, reference=llama(None, False), **OPTIONS).history
    for name in first:
        np.testing.assert_allclose(kept[name], first[name], rtol=1e-4, atol=1e-5)
    whole = llama(adapter=False)  # all weights are trained: the reference is kept
    logs = whole.fit(PAIRS, epochs=3, reference=whole, **OPTIONS).history
    np.testing.assert_allclose(logs["rewards/margins"][0], 0, atol=0.2)
    assert logs["rewards/accuracies"][2] > 0.9


def test_accumulated_batches_are_one_large_one():
    def weights(tokens, **options):
        model = llama(**options)
        options = {"shuffle": False, "epochs": 2, **OPTIONS, "batch_tokens": tokens}
        model.fit(PAIRS[:38], **options)  # 24 rows
        return model.get_weights()

    small = weights(32, accumulate_gradients=4)
    for one, other in zip(weights(128), small, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_a_plan_has_the_pass_of_the_reference_too():
    plain, dpo = (
        llama(loss).plan(batch_tokens=128, length=32) for loss in (losses.ORPO(), "dpo")
    )
    assert 1.2 * plain.flops < dpo.flops and dpo.program == "train"


def trained(loss, data, mesh=None):
    model = llama(loss, **({} if mesh is None else {"mesh": mesh}))
    history = model.fit(data, epochs=2, **OPTIONS | {"batch_tokens": 256}).history
    logs = model.evaluate(data, return_dict=True, **OPTIONS)
    return [*history["loss"], *logs.values()]


@pytest.mark.parametrize("mesh", ["data", "fsdp"])
@pytest.mark.parametrize(
    ("loss", "data"), [(losses.DPO(), PAIRS[:20]), (losses.KTO(), ANSWERS[:20])]
)
@on_devices
def test_on_meshes(mesh, loss, data):
    plain = trained(loss, data)
    np.testing.assert_allclose(trained(loss, data, mesh), plain, rtol=1e-4, atol=1e-6)


KILLED = """
import json, os, signal, sys
import numpy as np
from tests.models.test_preference import *

folder, at = sys.argv[1], int(sys.argv[2])

class Kill(exburn.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if self.model.optimizer.iterations == at:
            os.kill(os.getpid(), signal.SIGKILL)

model = llama()
callbacks = [ModelCheckpoint(folder, save_freq=2), Kill()]
history = model.fit(
    PAIRS, epochs=3, callbacks=callbacks, resume="auto", **OPTIONS
).history
digest = [np.ascontiguousarray(w).tobytes().hex() for w in model.get_weights()]
print(json.dumps([digest, history]))
"""


def test_a_run_that_is_killed_within_an_epoch_ends_as_the_other(tmp_path):
    def run(folder, at=-1):
        command = [sys.executable, "-c", KILLED, str(tmp_path / folder), str(at)]
        root = str(Path(__file__).parents[2])
        environment = {**os.environ, "PYTHONPATH": root}
        return subprocess.run(command, capture_output=True, env=environment, cwd=root)

    assert run("killed", 8).returncode == -signal.SIGKILL
    again, whole = run("killed"), run("whole")
    results = [json.loads(one.stdout.splitlines()[-1]) for one in (again, whole)]
    assert results[0][0] == results[1][0]
    assert results[0][1]["loss"][-1] == results[1][1]["loss"][-1]


CHANGED = {
    "pairs": lambda fit: fit(PAIRS[:-1]),
    "exchanged answers": lambda fit: fit(
        [DocumentPair(PAIRS[0].rejected, PAIRS[0].chosen), *PAIRS[1:]]
    ),
    "beta": lambda fit: fit(PAIRS, losses.DPO(0.2)),
    "the loss": lambda fit: fit(PAIRS, losses.IPO()),
    "a reference": lambda fit: fit(PAIRS, reference=llama(None, False)),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_run_of_something_else_is_not_resumed(change, tmp_path):
    def fit(data, loss="dpo", **options):
        saver = ModelCheckpoint(tmp_path, save_freq="epoch")
        options |= {"callbacks": [saver], "resume": "auto", "epochs": 2, **OPTIONS}
        llama(loss).fit(data, **options)

    fit(PAIRS)
    with pytest.raises(CheckpointError, match="depends on|differ"):
        CHANGED[change](fit)


def fit(model, data, **options):
    return lambda: model().fit(data, **OPTIONS | options)


NOTHING = Document([1, 2], [True, False])
REFUSALS = [
    (fit(lambda: llama(adapter=False), PAIRS), ArgumentError, "no adapter is active"),
    (fit(llama, ANSWERS), DataError, "40 of 40 rows are not what the loss learns"),
    (fit(lambda: llama(losses.KTO()), PAIRS), DataError, "'completion' and 'label'"),
    (
        fit(lambda: llama(losses.KTO()), [one.chosen for one in PAIRS]),
        DataError,
        "40 of 40 answers have no label",
    ),
    (fit(lambda: llama(losses.KTO()), ANSWERS[:1]), DataError, "there is one answer"),
    (
        fit(llama, [*PAIRS, DocumentPair(PAIRS[0].chosen, NOTHING)]),
        DataError,
        "1 of 41 pairs have an answer of which no token is counted",
    ),
    (fit(llama, PAIRS, length=16), DataError, "pairs are longer than a row of 16"),
    (
        fit(llama, PackedDocuments([PAIRS[0].chosen])),
        ArgumentError,
        "DPO learns from pairs",
    ),
    (
        fit(lambda: llama("sparse_categorical_crossentropy"), PackedPairs(PAIRS)),
        ArgumentError,
        "the loss learns from documents",
    ),
    (
        fit(lambda: llama(losses.ORPO()), PAIRS, reference=llama),
        ArgumentError,
        "reference is read by losses.DPO, IPO and KTO, and the model has ORPO",
    ),
    (fit(llama, PAIRS, reference="base"), ArgumentError, "reference is a model"),
    (fit(llama, PAIRS, y=[1]), ArgumentError, "y is not taken"),
    (
        lambda: llama([losses.DPO()]),
        ArgumentError,
        "DPO is the only loss of a model",
    ),
    (
        lambda: llama().train_on_batch(np.ones((1, 8), int), np.ones((1, 8), int)),
        ArgumentError,
        "packed into rows",
    ),
]


@pytest.mark.parametrize("number", range(len(REFUSALS)))
def test_refusals(number):
    call, kind, text = REFUSALS[number]
    with pytest.raises(kind, match=text):
        call()


def test_weights_that_are_trained_beside_an_adapter_are_no_reference():
    model = llama()
    model.layers[-1].trainable = True
    for weight in model.layers[-1].weights:
        weight.set_metadata("frozen", False)
    with pytest.raises(ArgumentError, match="weights beside the adapter"):
        model.fit(PAIRS, **OPTIONS)
