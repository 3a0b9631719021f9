"""Tokens that models write: what they are, what stops them, what they cost."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.applications import GPT2, Llama
from exburn.errors import ArgumentError, DataError, DTypeError
from exburn.text import Contrastive, Greedy, TopK, TopP

WORDS = 11
PROMPTS = [[1, 2, 3], [4, 5, 6, 7, 8, 9], [10]]


def steps_by_hand(model, prompt, count):
    """The likeliest tokens by whole passes over all of them, and what fills them up."""
    tokens = list(prompt)
    for _ in range(count):
        filled = np.array([tokens + [0] * (24 - len(tokens))])
        scores = model.predict_on_batch(filled)[0, len(tokens) - 1]
        tokens.append(int(scores.argmax()))
    return tokens[len(prompt) :]


@pytest.fixture(scope="module")
def gpt():
    exburn.set_random_seed(3)
    model = GPT2(WORDS, layers=1, width=16, heads=2, positions=96)
    sharpen(model)
    return model


def sharpen(model):
    """Makes random weights large enough that tokens differ."""
    model.set_weights([12 * w if w.ndim > 1 else w for w in model.get_weights()])


def traces(model):
    trainer = model._training_session.trainer
    return {} if trainer is None else dict(trainer.preparer.program_cache.trace_counts)


def test_rows_of_unlike_lengths_have_the_tokens_of_whole_passes(gpt):
    answers = gpt.generate(PROMPTS, 9)
    assert [steps_by_hand(gpt, p, 9) for p in PROMPTS] == [a.tolist() for a in answers]
    assert len({tuple(a) for a in map(tuple, answers)}) == 3
    before = traces(gpt)
    assert before["prefill"] == before["generate"] == 1
    for count in (5, 12):  # of the same bucket of lengths
        gpt.generate([[7] * 12, [3], [4] * 16], count)
    assert traces(gpt) == before
    whole = gpt.generate(PROMPTS, 9, cache=False)
    assert [a.tolist() for a in whole] == [a.tolist() for a in answers]


def test_a_stop_ends_a_row_and_is_not_part_of_it(gpt):
    options = {"sampler": TopK(9, temperature=2.0), "seed": 4}
    plain = gpt.generate(PROMPTS[0], 30, **options).tolist()
    stop = plain[3]
    short = gpt.generate(PROMPTS[0], 30, stop=stop, **options)
    assert short.tolist() == plain[: plain.index(stop)]
    pair = plain[4:6]
    at = next(i for i in range(29) if plain[i : i + 2] == pair)
    assert 0 < at < 29
    (short,) = gpt.generate([PROMPTS[0]], 30, stop=[pair], **options)
    assert short.tolist() == plain[:at]
    pieces = list(gpt.generate(PROMPTS[0], 30, stop=[pair], stream=4, **options))
    assert np.concatenate(pieces).tolist() == short.tolist()
    assert len(gpt.generate(PROMPTS[0], 2, stop=[plain[:2]], **options)) == 0


def test_a_stream_has_the_tokens_of_the_whole_and_frees_the_cache(gpt):
    whole = gpt.generate(PROMPTS, 40, sampler=TopK(5), seed=1)
    gc.collect()
    before = sum(a.nbytes for a in jax.live_arrays())
    stream = gpt.generate(PROMPTS, 40, sampler=TopK(5), seed=1, stream=8)
    first = next(stream)
    held = sum(a.nbytes for a in jax.live_arrays()) - before
    rest = [first, *stream]
    assert len(rest) > 4
    for row, expected in enumerate(whole):
        joined = np.concatenate([piece[row] for piece in rest])
        assert joined.tolist() == expected.tolist()
    unread = gpt.generate(PROMPTS, 40, stream=True)
    next(unread)
    unread.close()
    del stream, unread
    gc.collect()
    assert sum(a.nbytes for a in jax.live_arrays()) <= before
    cache = 2 * 3 * (16 + 64) * 16 * 4
    assert held >= cache


def test_a_seed_reproduces_and_rows_do_not_see_each_other(gpt):
    sampler = TopP(0.9, temperature=1.5)
    some = gpt.generate(PROMPTS, 12, sampler=sampler, seed=5)
    again = gpt.generate(PROMPTS, 12, sampler=sampler, seed=5)
    alone = gpt.generate(PROMPTS[:1], 12, sampler=sampler, seed=5)
    other = gpt.generate(PROMPTS, 12, sampler=sampler, seed=6)
    assert [a.tolist() for a in some] == [a.tolist() for a in again]
    assert some[0].tolist() == alone[0].tolist()
    assert [a.tolist() for a in some] != [a.tolist() for a in other]
    before = traces(gpt)
    gpt.generate(PROMPTS, 12, sampler=TopP(0.5, temperature=0.7), seed=5)
    assert traces(gpt) == before  # its numbers are arguments


@pytest.mark.parametrize(
    "sampler",
    [lambda logits, keys: logits, lambda logits, keys: 1, lambda logits, keys: keys],
    ids=["scores", "one", "keys"],
)
def test_what_a_sampler_returns_is_checked(gpt, sampler):
    with pytest.raises(ArgumentError, match=r"token number for each row, int32\[2\]"):
        gpt.generate([[1], [2]], 3, sampler=sampler)


def test_repetition_is_penalized_and_a_function_may_choose(gpt):
    (row,) = gpt.generate([[1]], 10, sampler=Greedy(repetition_penalty=1e6))
    (plain,) = gpt.generate([[1]], 10)
    assert len({*row.tolist()}) > len({*plain.tolist()}) + 1
    (row,) = gpt.generate([[1]], 4, sampler=lambda logits, keys: logits.argmin(-1))
    assert row.tolist() != gpt.generate([[1]], 4)[0].tolist()
    text = gpt.generate([1, 2], 3, include_prompt=True)
    assert text[:2].tolist() == [1, 2] and len(text) == 5


def contrasted_by_hand(model, prompt, count, k, alpha):
    """Contrastive search by its formula, with whole passes over each candidate."""
    norm = model.get_layer("norm").output
    both = exburn.Model(model.input, [norm, model.output])

    def see(tokens):
        vectors, scores = both.predict_on_batch(
            np.array([tokens + [0] * (24 - len(tokens))])
        )
        vectors = np.asarray(vectors[0, : len(tokens)], "float64")
        chances = np.exp(np.asarray(scores[0, len(tokens) - 1], "float64"))
        vectors /= np.linalg.norm(vectors, axis=-1, keepdims=True)
        return vectors, chances / chances.sum()

    tokens = list(prompt)
    for _ in range(count):
        chances = see(tokens)[1]
        values = {}
        for token in np.argsort(-chances)[:k].tolist():
            *before, own = see([*tokens, token])[0]
            values[token] = (1 - alpha) * chances[token] - alpha * max(before @ own)
        tokens.append(max(values, key=values.get))
    return tokens[len(prompt) :]


def test_contrastive_search_is_its_formula(gpt):
    sampler = Contrastive(k=4, alpha=0.6)
    answers = [a.tolist() for a in gpt.generate(PROMPTS, 7, sampler=sampler)]
    assert answers == [contrasted_by_hand(gpt, p, 7, 4, 0.6) for p in PROMPTS]
    assert answers != [a.tolist() for a in gpt.generate(PROMPTS, 7)]
    whole = gpt.generate(PROMPTS, 7, sampler=sampler, cache=False)
    assert [a.tolist() for a in whole] == answers
    before = traces(gpt)
    likeliest = gpt.generate(PROMPTS, 7, sampler=Contrastive(k=4, alpha=0.0))
    assert traces(gpt) == before  # another number compiles nothing
    assert [a.tolist() for a in likeliest] == [
        a.tolist() for a in gpt.generate(PROMPTS, 7)
    ]
    pieces = list(gpt.generate(PROMPTS[0], 7, sampler=sampler, stream=2))
    assert np.concatenate(pieces).tolist() == answers[0]
    stop = answers[0][3]
    ended = gpt.generate(PROMPTS, 7, sampler=sampler, stop=stop)
    assert ended[0].tolist() == answers[0][: answers[0].index(stop)]
    penalty = {"repetition_penalty": 3.0}
    one, other = (
        gpt.generate(PROMPTS[0], 7, sampler=sampler)
        for sampler in (Contrastive(20, 0.0, **penalty), Greedy(**penalty))
    )
    assert one.tolist() == other.tolist() != likeliest[0].tolist()


def test_contrastive_search_needs_vectors():
    fixed = exburn.Sequential(
        [
            exburn.Input((6,), dtype="int32"),
            layers.Embedding(WORDS, 4),
            layers.Dense(WORDS),
        ]
    )
    with pytest.raises(ArgumentError, match="shows none"):
        fixed.generate([1, 2], 3, sampler=Contrastive())
    with pytest.raises(ArgumentError, match="what repeats"):
        Contrastive()(jnp.zeros((1, 3)), None)
    for wrong in ({"k": 0}, {"alpha": 2}):
        with pytest.raises(ArgumentError):
            Contrastive(**wrong)


def test_beams_find_what_an_exhaustive_search_finds():
    exburn.set_random_seed(1)
    model = GPT2(4, layers=1, width=8, heads=2, positions=16)
    sharpen(model)
    prompt, count, stop = [1, 2], 3, 3

    def score(tokens):
        filled = prompt + list(tokens) + [0] * (3 - len(tokens))
        logits = model.predict_on_batch(np.array([filled]))[0, len(prompt) - 1 :]
        chances = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        return sum(c[t] for c, t in zip(chances, tokens, strict=False))

    every = [(a, b, c) for a in range(3) for b in range(3) for c in range(4)]
    every += [(a, 3) for a in range(3)] + [(3,)]
    best = max(every, key=score)
    found = model.generate([prompt], count, beams=64, stop=stop)[0]
    assert found.tolist() == [t for t in best if t != stop]
    (greedy,) = model.generate([prompt], count)
    (one,) = model.generate([prompt], count, beams=1)
    assert one.tolist() == greedy.tolist()


def test_llama_with_shared_heads_and_a_window_is_cached():
    exburn.set_random_seed(2)
    options = {"heads": 4, "key_value_heads": 2, "mlp_width": 24}
    model = Llama(WORDS, layers=2, width=16, sliding_window=4, **options)
    sharpen(model)
    answers = model.generate(PROMPTS, 12, cache=True)
    assert [a.tolist() for a in answers] == [
        steps_by_hand(model, prompt, 12) for prompt in PROMPTS
    ]
    entries = model._training_session.generation[1]
    assert entries.why_not_cached is None and entries.positions is None


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16"])
def test_half_precision(dtype):
    exburn.set_random_seed(2)
    model = Llama(WORDS, 1, 16, 4, 2, 24, dtype=dtype)
    stream = model.generate(PROMPTS, 20, stream=True)
    next(stream)
    kinds = {leaf.dtype.name for leaf in jax.live_arrays() if leaf.ndim == 4}
    assert "bfloat16" in kinds
    assert sum(len(piece[0]) for piece in stream) == 19


def test_other_causal_models_see_all_tokens_again():
    exburn.set_random_seed(4)
    model = exburn.Sequential(
        [
            layers.Input((8,), dtype="int32"),
            layers.Embedding(WORDS, 6),
            layers.Conv1D(8, 3, padding="causal"),
            layers.LSTM(8, return_sequences=True),
            layers.Dense(WORDS),
        ]
    )
    sharpen(model)
    (row,) = model.generate([[1, 2]], 10)
    tokens = [1, 2]
    for _ in range(10):  # of the last eight tokens
        window = np.zeros((1, 8), int)
        recent = tokens[-8:]
        window[0, : len(recent)] = recent
        scores = model.predict(window, verbose=0)[0, len(recent) - 1]
        tokens.append(int(scores.argmax()))
    assert row.tolist() == tokens[2:]
    with pytest.raises(ArgumentError, match="8 steps, neither more nor fewer"):
        model.generate([[1, 2]], 10, cache=True)


def test_a_model_that_counts_positions_itself_is_not_cached(gpt):
    class Positions(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.table = layers.Embedding(64, 16)

        def call(self, x):
            return x + self.table(jnp.arange(x.shape[1]))

    exburn.set_random_seed(4)
    inputs = layers.Input((None,), dtype="int32")
    x = Positions()(layers.Embedding(WORDS, 16)(inputs))
    x = x + layers.MultiHeadAttention(2, 8)(x, x, use_causal_mask=True)
    model = exburn.Model(inputs, layers.Dense(WORDS)(x))
    sharpen(model)
    assert model.generate(PROMPTS[1], 8).tolist() == steps_by_hand(model, PROMPTS[1], 8)
    with pytest.raises(ArgumentError, match="number of a position"):
        model.generate([1], 2, cache=True)
    both = layers.MultiHeadAttention(2, 8)
    inputs = layers.Input((None,), dtype="int32")
    x = layers.Embedding(WORDS, 16)(inputs)
    model = exburn.Model(inputs, layers.Dense(WORDS)(both(x, x)))
    sharpen(model)
    with pytest.raises(ArgumentError, match="not causal"):
        model.generate([1, 2], 4)


@pytest.mark.parametrize(
    ("prompt", "options", "error", "text"),
    [
        ([], {}, DataError, "no prompt"),
        ([[1], []], {}, DataError, "prompt 1 is empty"),
        ([1.5], {}, DTypeError, "must be integers"),
        ([WORDS], {}, DataError, "from 0 to 10"),
        ([-1], {}, DataError, "from 0 to 10"),
        ("word", {}, ArgumentError, "needs the model's tokenizer"),
        ([1], {"max_new_tokens": 0}, ArgumentError, "max_new_tokens"),
        ([1], {"max_new_tokens": 96}, ArgumentError, "96 positions"),
        ([1], {"sampler": "greedy"}, ArgumentError, "sampler must be"),
        ([1], {"stop": "end"}, ArgumentError, "for prompts that are texts"),
        ([1], {"stop": 2.5}, ArgumentError, "stop must be an integer"),
        ([1], {"beams": 2, "sampler": Greedy()}, ArgumentError, "beams"),
        ([1], {"beams": 0}, ArgumentError, "beams must be"),
        ([1], {"room": 3}, ArgumentError, "room is"),
        ([1, 2], {"room": (1, 64)}, ArgumentError, "room for 1 tokens of a prompt"),
        ([1], {"stream": -3}, ArgumentError, "stream must be"),
        ([1], {"seed": -1}, ArgumentError, "seed"),
        (np.ones((1, 2, 3), int), {}, ArgumentError, "an array of shape"),
    ],
)
def test_bad_input_is_an_error_before_anything_is_compiled(
    gpt, prompt, options, error, text
):
    before = traces(gpt)
    with pytest.raises(error, match=text):
        gpt.generate(prompt, **options)
    assert traces(gpt) == before


class Block(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attention = layers.MultiHeadAttention(2, 8)

    def call(self, x):
        return x + self.attention(x, x, use_causal_mask=True)


@pytest.mark.parametrize("begins", [True, False])
def test_a_stack_of_layers_of_ones_own_is_cached(begins):
    exburn.set_random_seed(4)
    stack = [layers.Embedding(WORDS, 16), Block(), Block(), layers.Dense(WORDS)]
    if begins:
        stack.insert(0, layers.Input((None,), dtype="int32"))
    model = exburn.Sequential(stack)
    model.generate([[1]], 2)  # builds it
    sharpen(model)
    answers = model.generate(PROMPTS[:2], 6, cache=True)
    whole = model.generate(PROMPTS[:2], 6, cache=False)
    assert [a.tolist() for a in answers] == [a.tolist() for a in whole]


def test_models_of_another_form_are_refused():
    model = exburn.Sequential([layers.Input((4,)), layers.Dense(3)])
    with pytest.raises(ArgumentError, match="one output of scores"):
        model.generate([1, 2])
    a, b = layers.Input((4,)), layers.Input((4,))
    with pytest.raises(ArgumentError, match="one input of tokens"):
        exburn.Model([a, b], layers.Add()([a, b])).generate([1])


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_two_hundred_tokens_with_and_without_a_cache(kind):
    exburn.set_random_seed(5)
    if kind == "gpt2":
        model = GPT2(50, layers=3, width=32, heads=4, positions=256)
    else:
        model = Llama(50, 3, 32, 4, 2, 64)
    sharpen(model)
    prompts = [[1, 2, 3], [4] * 20]
    cached = model.generate(prompts, 200)
    whole = model.generate(prompts, 200, cache=False)
    assert [a.tolist() for a in cached] == [a.tolist() for a in whole]
    assert len(set(cached[0].tolist())) > 5
