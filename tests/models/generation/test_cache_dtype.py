"""Keys and values of 8 bits: their error, size, and what searches make of them."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn.applications import GPT2
from exburn.errors import ArgumentError
from exburn.models.generation.memory import CachedMemory
from exburn.models.preparing import on_device
from exburn.text import Contrastive

WORDS = 5
PROMPT = [1, 2, 3, 4, 1]


@pytest.fixture(scope="module")
def model():
    exburn.set_random_seed(3)
    model = GPT2(WORDS, layers=2, width=16, heads=2, positions=64)
    model.set_weights([6 * w if w.ndim > 1 else w for w in model.get_weights()])
    model.generate(PROMPT, 1)  # so that it is prepared
    return model


def _scores(model, texts, few_bits):
    """Scores before each token of texts behind the prompt, by steps over a cache."""
    holder = model._training_session.trainer.holder
    memory = CachedMemory(holder.split, None, few_bits)
    rows, count = texts.shape

    def run(groups, ids, lengths, texts):
        cache, scores, _ = memory.begin(groups, ids, lengths, ids.shape[1] + count)
        each = [scores]
        for step in range(count - 1):
            arguments = cache, texts[:, step], step, lengths, ids.shape[1]
            cache, scores = memory.advance(groups, *arguments)
            each.append(scores)
        return jnp.stack(each, 1), cache

    ids = np.tile(np.int32(PROMPT), (rows, 1))
    lengths = np.full(rows, len(PROMPT), np.int32)
    with on_device(model):
        return jax.jit(run)(holder.split.read(), ids, lengths, texts)


def test_scores_are_those_of_the_exact_cache_but_for_the_rounding(model):
    texts = np.random.default_rng(0).integers(0, WORDS, (4, 12)).astype(np.int32)
    (exact, whole), (scores, entries) = (_scores(model, texts, b) for b in (0, 1))
    np.testing.assert_array_equal(exact[:, 0], scores[:, 0])  # of the prompt alone
    error = np.abs(exact - scores)
    assert 0 < error.max() < 0.01 * np.abs(exact).max()
    for old, new in zip(whole.values(), entries.values(), strict=True):
        for exact, bits, scale in zip(old, new[:2], new[2:], strict=True):
            assert bits.dtype == jnp.int8
            near = bits * scale[..., None]  # of later layers another query, too
            assert np.abs(near - exact).max() < 0.02 * np.abs(exact).max()


def test_searches_find_what_is_best_by_this_cache(model):
    texts = np.int32(list(itertools.product(range(WORDS), repeat=3)))
    scores, _ = _scores(model, texts, True)
    chances = jax.nn.log_softmax(scores)
    total = jnp.take_along_axis(chances, texts[..., None], -1).sum((1, 2))
    best = model.generate(PROMPT, 3, beams=WORDS**2, cache_dtype="int8")
    assert best.tolist() == texts[total.argmax()].tolist()
    greedy = model.generate([PROMPT, [2, 2]], 9, cache_dtype="int8")
    likely = model.generate(
        [PROMPT, [2, 2]], 9, sampler=Contrastive(3, alpha=0.0), cache_dtype="int8"
    )
    assert [row.tolist() for row in likely] == [row.tolist() for row in greedy]
    pieces = list(model.generate(PROMPT, 9, stream=2, cache_dtype="int8"))
    assert np.concatenate(pieces).tolist() == greedy[0].tolist()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"cache_dtype": "int4"}, "cache_dtype is"),
        ({"cache_dtype": jnp.int8}, "cache_dtype is"),
        ({"cache_dtype": "int8", "cache": False}, "no cache for cache_dtype"),
        ({"cache_dtype": "int8", "draft": "ngrams"}, "leave out cache_dtype"),
    ],
)
def test_what_it_does_not_go_with_is_told(model, options, reason):
    with pytest.raises(ArgumentError, match=reason):
        model.generate(PROMPT, 2, **options)
