"""Tests of ``exburn.models.improving.prompts``."""

import numpy as np
import pytest

from exburn.applications import GPT2
from exburn.errors import ArgumentError, DataError
from exburn.models.generation.generate import prepare_generation
from exburn.models.improving.prompts import read_rows
from exburn.text import CHATML, Tokenizer

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


@pytest.fixture(scope="module")
def model():
    model = GPT2(vocabulary_size=280, layers=1, width=8, heads=2, positions=64)
    tokenizer = Tokenizer.train(["so it is, so it was"] * 9, 270, special=SPECIAL)
    model.tokenizer = tokenizer.with_chat_template(CHATML)
    return model


def read(model, source, length=8):
    trainer, _, plan = prepare_generation(model, None)
    return read_rows(model, source, (trainer, plan, length), "prompts")


def test_texts_chats_tokens_and_objects_are_rows(model):
    chat = [{"role": "user", "content": "so"}]
    rows = read(
        model,
        [
            {"prompt": "so it", "answer": "is"},
            {"prompt": chat, "answer": "was", "further": 1},
            {"messages": chat, "answer": "was"},
            {"prompt": [3, 4], "answer": "it"},
        ],
    )
    decode = model.tokenizer.decode
    assert decode(rows.rows[0].tokens) == "so it"
    laid_out = "<|im_start|>user\nso<|im_end|>\n<|im_start|>assistant\n"
    texts = [decode(row.tokens, special=True) for row in rows.rows[1:3]]
    assert texts == [laid_out] * 2
    assert rows.rows[3].tokens.tolist() == [3, 4]
    assert set(rows.columns) == {"prompt", "answer"}  # that all have
    ends = {model.tokenizer.number_of(name) for name in (SPECIAL[0], SPECIAL[2])}
    assert set(rows.ends) == ends


def test_an_open_answer_is_written_on(model):
    chat = [
        {"role": "user", "content": "so"},
        {"role": "assistant", "content": "it is"},
    ]
    [row] = read(model, [chat]).rows
    text = model.tokenizer.decode(row.tokens, special=True)
    assert text.endswith("<|im_start|>assistant\nit is")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"text": "so"}, "it has no 'prompt', but 'text'"),
        ("", "its prompt is empty"),
        ([], "its prompt is empty"),
        ("so it is " * 20, "64 positions, 8 of which are for an answer"),
        ([0, 279, 280], "from 0 to 279"),
        ([1, -2], "0 to 279"),
        ([1.5, 2.0], "no text, chat or list of token numbers"),
        ({"prompt": 7}, "no text, chat or list of token numbers"),
        ([[1], [2, 3]], "no text, chat or list of token numbers"),
        ("a\ud800b", "half of a surrogate"),
        ([{"role": "user"}], "row 1"),
    ],
    ids=range(11),
)
def test_bad_rows_are_named(model, bad, reason):
    with pytest.raises(DataError) as caught:
        read(model, ["so", bad, "it"])
    text = str(caught.value)
    assert "1 of 3 rows of prompts cannot be used" in text
    assert "row 1" in text and reason in text


def test_no_rows_are_no_prompts(model):
    with pytest.raises(DataError, match="there are no prompts"):
        read(model, [])


def test_a_text_needs_a_tokenizer_and_a_chat_its_template():
    plain = GPT2(vocabulary_size=280, layers=1, width=8, heads=2, positions=64)
    with pytest.raises(ArgumentError, match="needs the model's tokenizer"):
        read(plain, ["so"])
    with pytest.raises(ArgumentError, match="template of the model's tokenizer"):
        read(plain, [[{"role": "user", "content": "so"}]])


def test_each_pass_has_every_row_once_in_an_order_of_its_own(model):
    rows = read(model, [[n] for n in range(10)])
    numbers = [int(row.tokens[0]) for row in rows.batch(3, 0, 30)]
    passes = [numbers[:10], numbers[10:20], numbers[20:]]
    assert all(sorted(one) == list(range(10)) for one in passes)
    assert len({tuple(one) for one in passes}) == 3
    again = [int(row.tokens[0]) for row in rows.batch(3, 8, 7)]
    assert again == numbers[8:15]  # wherever a batch begins
    other = [int(row.tokens[0]) for row in rows.batch(4, 0, 10)]
    assert other != passes[0]


def test_the_digest_tells_rows_apart(model):
    one, same, other = (
        read(model, [{"prompt": "so", "answer": answer}]).digest for answer in "aab"
    )
    assert one == same != other
    assert np.array_equal(
        read(model, ["so"]).rows[0].tokens, model.tokenizer.encode("so")
    )
