"""Tests of ``exburn.models.judging``."""

import json
import math

import numpy as np
import pytest
from tests.models import judging_recorded

import exburn
from exburn import layers
from exburn.applications import GPT2
from exburn.errors import ArgumentError, DataError
from exburn.models.generation import scoring
from exburn.models.generation.scoring import windows_of
from exburn.runtime.kernels import head_loss

RECORDED = json.loads(judging_recorded.FILE.read_text())
LENGTH, STRIDE = judging_recorded.LENGTH, judging_recorded.STRIDE


@pytest.fixture(scope="module")
def model():
    return judging_recorded.make_model()


def test_losses_are_those_of_the_recipe_of_transformers(model):
    texts = judging_recorded.make_texts()
    score = model.evaluate_text(texts, length=LENGTH, stride=STRIDE, batch_size=3)
    counts, nats = zip(*RECORDED["losses"], strict=True)
    assert score.tokens == sum(counts)
    expected = [n / count for count, n in RECORDED["losses"]]
    np.testing.assert_allclose(score.losses, expected, rtol=2e-6)
    assert score.perplexity == pytest.approx(math.exp(sum(nats) / sum(counts)))


def test_batches_of_any_size_give_the_same(model):
    texts = judging_recorded.make_texts()[:3]
    one, all_ = (model.evaluate_text(texts, batch_size=n) for n in (1, 8))
    assert one.nats == pytest.approx(all_.nats, rel=1e-6)
    assert one.greedy == all_.greedy


def test_bytes_and_words_are_those_behind_the_first_token(model):
    text = judging_recorded.make_texts()[1]
    first = model.tokenizer.encode_with_offsets([text])[0][1][0, 1]
    score = model.evaluate_text(text)
    assert score.bytes == len(text[first:].encode())
    assert score.words == len(text[first:].split())
    assert score.bits_per_byte == pytest.approx(score.nats / score.bytes / math.log(2))
    assert score.byte_perplexity == pytest.approx(2**score.bits_per_byte)
    assert score.word_perplexity == pytest.approx(math.exp(score.nats / score.words))
    assert "Bits per byte" in str(score) and score["tokens"] == score.tokens


def test_many_scores_are_read_in_chunks(monkeypatch):
    model = GPT2(1100, layers=1, width=16, heads=2, positions=128)
    text = np.random.default_rng(0).integers(0, 1100, 300)
    text[40:80] = np.argmax(model(text[None, :40]), -1)[0]  # some lead
    whole = model.evaluate_text(text)
    monkeypatch.setitem(head_loss.SCORES, "cpu", 1)
    monkeypatch.setitem(head_loss.CHUNK, "cpu", 2**17)
    other = GPT2(1100, layers=1, width=16, heads=2, positions=128)
    other.set_weights(model.get_weights())
    asked = []
    original = scoring.fits
    monkeypatch.setattr(
        scoring, "fits", lambda h: asked.append(original(h)) or asked[-1]
    )
    chunks = other.evaluate_text(text)
    assert asked and all(asked)
    assert chunks.nats == pytest.approx(whole.nats, rel=1e-6)
    assert chunks.greedy == whole.greedy


def test_letters_of_several_bytes_count_by_bytes(model):
    score = model.evaluate_text("aäö€")
    assert score.bytes == 2 + 2 + 3


def test_texts_without_a_scored_token_count_for_nothing(model):
    text = judging_recorded.make_texts()[0]
    score = model.evaluate_text(["", "k", text])
    alone = model.evaluate_text(text)
    assert score.nats == pytest.approx(alone.nats) and score.bytes == alone.bytes
    assert math.isnan(score.losses[0]) and math.isnan(score.losses[1])


def test_numbers_of_tokens_are_taken_as_they_are(model):
    text = judging_recorded.make_texts()[1]
    numbers = model.tokenizer.encode(text)
    score = model.evaluate_text([numbers])
    assert score.nats == pytest.approx(model.evaluate_text(text).nats)
    assert score.bytes is None and score.bits_per_byte is None


@pytest.mark.parametrize("stride", [1, 3, 7])
@pytest.mark.parametrize("size", [2, 7, 8, 9, 30])
def test_each_token_but_the_first_is_scored_once(size, stride):
    scored = []
    for window in windows_of(np.arange(size), 8, stride):
        assert len(window.tokens) <= 8 and window.scored < len(window.tokens)
        scored += window.tokens[-window.scored :].tolist()
    assert scored == list(range(1, size))


def test_a_model_that_sees_what_comes_is_refused():
    tokens = exburn.Input((None,), dtype="int32")
    x = layers.Embedding(9, 8, "random_normal")(tokens) * 40
    x = layers.MultiHeadAttention(2, 4)(x, x)
    model = exburn.Model(tokens, layers.Dense(9)(x))
    with pytest.raises(ArgumentError, match="not causal"):
        model.evaluate_text([np.arange(9) % 7])


def small():
    return GPT2(9, layers=1, width=8, heads=2, positions=8)


BAD_ARGUMENTS = [
    (lambda: small().evaluate_text("text"), "no tokenizer"),
    (lambda: small().evaluate_text([np.arange(4)], length=9), "8 positions"),
    (lambda: small().evaluate_text([np.arange(4)], length=4, stride=4), "less than"),
    (lambda: small().evaluate_text([np.arange(4)], stride=0), "stride"),
    (lambda: small().evaluate_text([np.ones(4)]), "integers"),
]


@pytest.mark.parametrize("texts", [[], [np.array([1])], [np.array([1, 99])]])
def test_texts_that_cannot_be_scored_are_refused(texts):
    with pytest.raises(DataError):
        small().evaluate_text(texts)
