"""Influence of chats, each in a row of its own."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import exburn
from exburn.applications import Llama
from exburn.errors import ArgumentError, DataError, ShapeError
from exburn.text import CHATML, Document, Tokenizer, pack

CHATS = [
    [
        {"role": "user", "content": "so " * (n % 3 + 1)},
        {"role": "assistant", "content": "it was " * (n % 2 + 1)},
    ]
    for n in range(6)
]


@pytest.fixture(scope="module")
def model() -> Any:
    exburn.utils.set_random_seed(1)
    model = Llama(300, layers=1, width=8, heads=2, mlp_width=16)
    special = ["<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer.train(["so it is, so it was"] * 9, 270, special=special)
    model.tokenizer = tokenizer.with_chat_template(CHATML)
    model.add_lora(2)
    model.compile("adam")
    weights = [
        0.1 * np.random.default_rng(0).normal(size=w.shape)
        for w in model.trainable_weights
    ]
    for weight, value in zip(model.trainable_weights, weights, strict=True):
        weight.assign(value)
    return model


@pytest.fixture(scope="module")
def rows(model):
    return model.influence(CHATS, on=CHATS[:2], method="datainf")


def test_a_chat_counts_as_a_row_of_its_own(model, rows):
    packed = pack(CHATS, model.tokenizer, cache=False)
    longest = int(packed.lengths.max())
    tokens, targets, counted = (np.zeros((6, longest), int) for _ in range(3))
    for row in range(6):
        document = packed[row]
        size = len(document)
        tokens[row, :size] = document.tokens
        targets[row, : size - 1] = document.tokens[1:]
        counted[row, : size - 1] = document.counted[1:]
    weights = counted / counted.sum(1, keepdims=True) * longest
    plain = Llama(300, layers=1, width=8, heads=2, mlp_width=16)
    plain.add_lora(2)
    plain.compile("adam")
    plain.set_weights(model.get_weights())
    expected = plain.influence(tokens, targets, sample_weight=weights, method="datainf")
    assert rows.entries == sum(w.numpy().size for w in model.trainable_weights)
    np.testing.assert_allclose(
        rows.self_influence, expected.self_influence, rtol=1e-3, atol=1e-5
    )
    np.testing.assert_allclose(rows.features, expected.features, rtol=1e-3, atol=1e-5)


def test_texts_are_in_the_table_and_in_the_file(rows, tmp_path):
    assert rows.texts[0] == "user so  assistant it was" and len(rows.texts) == 6
    assert rows.texts[0] in str(rows) and rows.scores.shape == (6, 2)
    rows.save(tmp_path / "rows")
    assert str(type(rows).load(tmp_path / "rows")) == str(rows)


def test_files_documents_and_prompts_are_chats_too(model, rows, tmp_path):
    path = tmp_path / "chats.jsonl"
    path.write_text("\n".join(json.dumps({"messages": chat}) for chat in CHATS))
    forms = [path, str(path), [{"messages": chat} for chat in CHATS]]
    forms.append(pack(CHATS, model.tokenizer, cache=False))
    for form in forms:
        again = model.influence(form, method="datainf")
        assert np.array_equal(again.self_influence, rows.self_influence)


def test_what_is_not_of_chats_is_refused_before_a_program(model):
    programs = model.trace_counts
    with pytest.raises(ArgumentError, match="y is not taken"):
        model.influence(CHATS, np.zeros(6))
    with pytest.raises(DataError, match="no answer"):
        model.influence(CHATS, on=[CHATS[0][:1]])
    mixed = Llama(300, layers=1, width=8, heads=2, mlp_width=16)
    mixed.compile("adam")
    with pytest.raises(ArgumentError, match="tokenizer"):
        mixed.influence(CHATS)
    dense = exburn.Sequential([exburn.Input((3,)), exburn.layers.Dense(1)])
    dense.compile("sgd", "mse")
    with pytest.raises(ShapeError, match="packed rows"):
        dense.influence([Document(np.array([1, 2]))])
    assert model.trace_counts == programs
