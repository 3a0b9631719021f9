"""Texts whose positions turn by angles that depend on their length."""

import functools

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError

LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.1],
    "long_factor": [3.0, 9.0],
    "factor": 4.0,
    "original_max_position_embeddings": 5,
}
DYNAMIC = {
    "rope_type": "dynamic",
    "factor": 6.0,
    "original_max_position_embeddings": 5,
}

SCALINGS = {"longrope": LONGROPE, "dynamic": DYNAMIC}


def decoder(scaling):
    exburn.set_random_seed(3)
    inputs = exburn.Input((None,), dtype="int32")
    x = layers.Embedding(23, 8, "random_normal")(inputs)
    for _ in range(2):
        rotary = layers.RotaryEmbedding(50.0, scaling=scaling)
        attention = layers.GroupedQueryAttention(
            4, 2, 1, rotary=rotary, kernel_initializer="random_normal"
        )
        x = layers.Add()([x, attention(x, x, use_causal_mask=True)])
        x = layers.LayerNormalization()(x)
    model = exburn.Model(inputs, layers.Dense(23, name="head")(x))
    key = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(key.normal(size=weight.shape).astype("f"))
    return model


PROMPTS, COUNT = [[1, 2, 3], [4, 5, 6, 7, 8, 9], [7, 7, 2, 1]], 4


@functools.cache
def model_and_texts(kind):
    """A decoder, and the likeliest tokens, each of a pass over a text alone."""
    model, texts = decoder(SCALINGS[kind]), []
    for prompt in PROMPTS:
        text = list(prompt)
        for _ in range(COUNT):
            scores = model.predict(np.array([text]), verbose=0)
            text.append(int(scores[0, -1].argmax()))
        texts.append(text[len(prompt) :])
    return model, texts


@pytest.mark.parametrize("kind", SCALINGS)
def test_a_text_is_that_of_its_own_length_whatever_fills_it_up(kind):
    model, texts = model_and_texts(kind)
    written = model.generate(PROMPTS, COUNT, cache=False)
    assert [list(row) for row in written] == texts


def test_keys_of_another_length_are_never_read():
    model, texts = model_and_texts("longrope")
    assert [list(row) for row in model.generate(PROMPTS, COUNT)] == texts
    with pytest.raises(ArgumentError, match="texts of more than 5 tokens"):
        model.generate(PROMPTS, COUNT, cache=True)
    # Rows that stay short, or are long from the start, keep theirs.
    assert list(model.generate(PROMPTS[0], 3, cache=True)) == texts[0][:3]
    assert list(model.generate(PROMPTS[1], COUNT, cache=True)) == texts[1]


def test_a_row_with_a_cache_is_the_same_alone_and_in_company():
    model, texts = model_and_texts("dynamic")
    both = model.generate(PROMPTS, COUNT, cache=True)
    for number, row in enumerate(both[:2]):
        alone = model.generate(PROMPTS[number], COUNT, cache=True)
        np.testing.assert_array_equal(alone, row)
