"""Tests of ``exburn.models.improving.improve``."""

import json

import numpy as np
import pytest
from tests.models.improving import recorded

import exburn
from exburn.applications import GPT2
from exburn.callbacks import LambdaCallback, ModelCheckpoint
from exburn.errors import (
    ArgumentError,
    CheckpointError,
    DataError,
    ExBurnError,
    NotCompiledError,
)
from exburn.models.improving.prompts import PromptRows
from exburn.models.improving.rollouts import Rollouts
from exburn.models.improving.sampling import AnswerSampler, SampledAnswer
from exburn.text import RandomSampler

RECORDED = json.loads(recorded.FILE.read_text())


@pytest.mark.parametrize("case", recorded.CASES)
def test_losses_and_figures_are_those_of_trl(case, monkeypatch):
    prompts, rows = recorded.answers()
    samples = recorded.GROUP * recorded.PROMPTS
    done = []

    def write(self, asked, seed):
        part = rows[len(done) * samples : (len(done) + 1) * samples]
        done.append(1)
        assert [row.tokens.tolist() for row in asked] == [row[0] for row in part]
        return [
            SampledAnswer(
                np.array(tokens, np.int32), tokens, tokens[-1] == recorded.END
            )
            for _, tokens, _ in part
        ]

    def reward(number):
        def function(texts):
            part = rows[(len(done) - 1) * samples : len(done) * samples]
            return [row[2][number] for row in part]

        return function

    monkeypatch.setattr(AnswerSampler, "write", write)
    monkeypatch.setattr(Rollouts, "_order", lambda self, count, random: range(count))
    monkeypatch.setattr(
        PromptRows, "batch", lambda self, seed, first, count: self.rows[first:][:count]
    )
    model = exburn.applications.from_pretrained(recorded.FOLDER)
    model.compile(exburn.optimizers.SGD(recorded.RATE))
    options = recorded.CASES[case]
    each = options.get("steps_per_generation", 1) * options.get("num_iterations", 1)
    history = model.improve(
        prompts,
        [reward(0), reward(1)],
        group=recorded.GROUP,
        batch_size=recorded.PROMPTS,
        max_new_tokens=recorded.MOST,
        reward_weights=recorded.WEIGHTS,
        epochs=2,
        steps_per_epoch=each,
        verbose=0,
        **options,
    )
    expected = RECORDED[case]
    tokens = np.array(expected["tokens"]).reshape(-1, each)
    for name in sorted(set(expected) - {"embeddings", "tokens"}):
        values = np.array(expected[name])
        if name not in ("reward", "reward_std"):  # means over a round's steps
            weights = np.ones_like(tokens) if name == "loss" else tokens
            values = np.average(values.reshape(-1, each), 1, weights)
        np.testing.assert_allclose(
            history.history[name], values, rtol=1e-4, atol=1e-4, err_msg=name
        )
    table = next(w for w in model.weights if w.path.endswith("embeddings"))
    assert np.abs(table.numpy()).sum() == pytest.approx(expected["embeddings"], 1e-5)


def evenness(texts):
    return [sum(token % 2 == 0 for token in text) for text in texts]


def length(texts):
    return [len(text) for text in texts]


def network(**options):
    exburn.utils.set_random_seed(3)
    model = GPT2(vocabulary_size=9, layers=1, width=16, heads=2, positions=32)
    if options:
        model.add_lora(**options)
    model.compile("adam", learning_rate=0.01, seed=0)
    return model


OPTIONS = {"group": 8, "batch_size": 2, "max_new_tokens": 6, "verbose": 0}
PROMPTS = [[1, 2], [3], [4, 5, 6], [7]]


@pytest.fixture(scope="module")
def improved():
    """A model that has learnt to write even tokens, and how that went."""
    model = network()
    model.optimizer.learning_rate = 0.004
    before = [weight.numpy() for weight in model.weights]
    seen = []
    history = model.improve(
        PROMPTS,
        [evenness, length],
        reward_weights=[1.0, 0.25],
        epochs=12,
        validation_prompts=[[1], [2, 2]],
        validation_freq=3,
        callbacks=[lambda logs: seen.append(logs)],
        **OPTIONS,
    )
    return model, history, before, seen


def test_what_is_rewarded_becomes_likelier(improved):
    model, history, before, _ = improved
    logged = history.history
    assert np.mean(logged["reward/evenness"][-3:]) > logged["reward/evenness"][0] + 1
    written = model.generate(PROMPTS * 4, 6, sampler=RandomSampler(), seed=1)
    assert np.mean(np.concatenate(written) % 2 == 0) > 0.65
    changed = [
        not np.array_equal(old, weight.numpy())
        for old, weight in zip(before, model.weights, strict=True)
    ]
    assert all(changed)


def test_its_history_is_that_of_fit(improved):
    model, history, _, seen = improved
    logged = history.history
    total = np.array(logged["reward/evenness"]) + 0.25 * np.array(
        logged["reward/length"]
    )
    np.testing.assert_allclose(logged["reward"], total, rtol=1e-5)
    assert logged["length"] == [6.0] * 12 and logged["truncated"] == [1.0] * 12
    assert len(logged["val_reward"]) == 4 and "val_reward/evenness" in seen[2]
    assert "kl" not in logged  # nothing is compared with a reference
    assert len(seen) == 12 and model.history is history
    assert history.params["steps"] == 2
    titles = {axes.get_title() for axes in history.plot().axes}
    assert {"reward", "entropy", "reward_std"} <= titles


def test_the_model_trains_for_its_own_loss_again_afterwards(improved):
    model = improved[0]
    assert model.metrics_names == ["loss"]
    rows = np.arange(8).reshape(2, 4)
    assert np.isfinite(model.evaluate(rows, rows, verbose=0))
    with pytest.raises(ValueError, match="in reward 'broken' of an answer to row"):
        model.improve(PROMPTS, broken, **OPTIONS)
    assert model.metrics_names == ["loss"]  # whatever ends it


def broken(texts):
    raise ValueError("nothing")


def test_a_bad_reward_ends_the_training_before_its_round_is_learnt_from():
    model, calls = network(), []

    def failing(texts):
        calls.append([weight.numpy() for weight in model.weights])
        return [1.0] * (len(texts) - (len(calls) == 3))

    with pytest.raises(DataError, match="'failing' gives 15 values for 16 texts"):
        model.improve(PROMPTS, failing, epochs=3, **OPTIONS)
    assert len(calls) == 3
    for then, weight in zip(calls[-1], model.weights, strict=True):
        np.testing.assert_array_equal(then, weight.numpy())
    np.testing.assert_array_equal(model.generate([1], 2).shape, (2,))


def test_a_run_goes_on_to_the_same_bytes(tmp_path):
    options = OPTIONS | {"epochs": 3, "num_iterations": 2, "beta": 0.05}

    def train(folder, stop=None):
        model = network(rank=2)

        def end(batch, logs):
            if batch + 1 == stop:
                raise KeyboardInterrupt

        return model, model.improve(
            PROMPTS,
            evenness,
            callbacks=[
                ModelCheckpoint(folder, save_freq=2),
                LambdaCallback(on_train_batch_end=end),
            ],
            resume="auto",
            **options,
        )

    whole, history = train(tmp_path / "one")
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "two", stop=4)
    again, resumed = train(tmp_path / "two")
    assert history.history == resumed.history
    for one, other in zip(whole.weights, again.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    other = network(rank=2)
    with pytest.raises(CheckpointError, match=r"x\.group: 8 → 4"):
        other.improve(
            PROMPTS,
            evenness,
            resume=tmp_path / "two",
            **options | {"group": 4, "batch_size": 4},
        )
    other.set_weights([weight.numpy() + 1e-3 for weight in other.weights])
    with pytest.raises(CheckpointError, match="x.reference"):
        other.improve(PROMPTS, evenness, resume=tmp_path / "two", **options)


def test_an_engine_draws_as_well():
    history = network().improve(PROMPTS, evenness, slots=4, epochs=2, **OPTIONS)
    assert history.history["length"] == [6.0, 6.0]
    assert history.history["entropy"][0] == pytest.approx(np.log(9), abs=0.05)


def test_tokens_that_end_an_answer_are_learnt():
    exburn.utils.set_random_seed(3)
    model = GPT2(
        9, layers=1, width=16, heads=2, positions=32, generation={"end_tokens": [4, 5]}
    )
    model.compile("adam", learning_rate=0.02, seed=0)

    def short(texts):
        assert not any({4, 5} & set(map(int, text)) for text in texts)
        return [-len(text) for text in texts]

    history = model.improve(PROMPTS, short, epochs=15, **OPTIONS).history
    assert history["length"][-1] < history["length"][0] - 1
    assert history["truncated"][-1] < history["truncated"][0]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"group": 1}, "group"),
        ({"loss": "ppo"}, "loss"),
        ({"scale_rewards": "rows"}, "scale_rewards"),
        ({"epsilon": 1.5}, "epsilon"),
        ({"beta": -1}, "beta"),
        ({"temperature": 0}, "temperature"),
        ({"steps_per_generation": 3}, "divided evenly"),
        ({"num_iterations": 2, "steps_per_epoch": 3}, "whole rounds"),
        ({"batch_tokens": 4}, "batch_tokens is an argument of fit"),
        ({"max_new_tokens": 40}, "4 of 4 rows of prompts cannot be used"),
        ({"validation_prompts": [[1], [9]]}, "1 of 2 rows of validation_prompts"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_arguments_are_refused_before_anything_is_compiled(options, problem):
    model = network()
    with pytest.raises(ExBurnError, match=problem):
        model.improve(PROMPTS, evenness, **OPTIONS | options)
    assert not model.trace_counts


def test_models_that_cannot_be_improved_say_so():
    model = GPT2(vocabulary_size=9, layers=1, width=16, heads=2, positions=32)
    with pytest.raises(NotCompiledError):
        model.improve(PROMPTS, evenness)
    numbers = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
    numbers.compile("sgd", "mse")
    with pytest.raises(ArgumentError, match="one output of scores"):
        numbers.improve(PROMPTS, evenness)
