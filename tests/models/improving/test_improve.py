"""Tests of ``exburn.models.improving.improve``."""

import json

import numpy as np
import pytest
from tests.models.improving import recorded

import exburn
from exburn.models.improving.prompts import PromptRows
from exburn.models.improving.rollouts import Rollouts
from exburn.models.improving.sampling import Answer, AnswerWriter

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
            Answer(np.array(tokens, np.int32), tokens, tokens[-1] == recorded.END)
            for _, tokens, _ in part
        ]

    def reward(number):
        def function(texts):
            part = rows[(len(done) - 1) * samples : len(done) * samples]
            return [row[2][number] for row in part]

        return function

    monkeypatch.setattr(AnswerWriter, "write", write)
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
