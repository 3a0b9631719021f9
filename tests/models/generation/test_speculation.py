"""Texts that are written with a draft: those without one, whatever it proposes."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from tests.models.generation.texts import KINDS, Player

import exburn
from exburn import layers
from exburn.applications import GPT2, Llama
from exburn.errors import ArgumentError
from exburn.models.generation import speculation
from exburn.text import (
    CHATML,
    Contrastive,
    DraftModel,
    Greedy,
    MinP,
    PromptLookup,
    RandomSampler,
    Tokenizer,
    TopK,
    TopP,
)

WORDS = 11
PROMPTS = [[1, 2, 3], [4, 5, 6, 4, 5, 6, 4], [10]]


def tiny(words=WORDS, width=16, seed=3, sharpness=12, positions=96):
    """A model whose tokens differ."""
    exburn.set_random_seed(seed)
    model = GPT2(words, layers=1, width=width, heads=2, positions=positions)
    weights = model.get_weights()
    model.set_weights([sharpness * w if w.ndim > 1 else w for w in weights])
    return model


@pytest.fixture(scope="module")
def gpt():
    return tiny()


@pytest.fixture(scope="module")
def small():
    return tiny(width=8, seed=4)


def lists(rows):
    return [row.tolist() for row in rows]


def traces(model):
    return dict(model._training_session.trainer.preparer.program_cache.trace_counts)


def test_greedy_texts_are_those_without_a_draft(gpt, small):
    plain = lists(gpt.generate(PROMPTS, 40))
    for draft in (PromptLookup(4, 1, 3), DraftModel(small, 3), DraftModel("int4", 3)):
        assert lists(gpt.generate(PROMPTS, 40, draft=draft)) == plain
        counts = draft.statistics
        assert counts.written == 3 * 39 > counts.passes
        # A pass writes one more than it accepts, but for a row's last.
        assert 0 <= counts.accepted - (counts.written - counts.passes) <= 3
        assert counts.drafted >= counts.accepted
        assert counts.acceptance == counts.accepted / counts.drafted
        before = traces(gpt)
        short = gpt.generate([[7] * 12, [3], [4] * 16], 5, draft=draft)
        assert [len(row) for row in short] == [5, 5, 5]
        assert traces(gpt) == before
    alone = gpt.generate(PROMPTS[1], 40, draft="ngrams", include_prompt=True)
    assert alone.tolist() == PROMPTS[1] + plain[1]


def test_a_model_that_drafts_for_itself_is_always_right(gpt):
    draft = DraftModel(gpt, 4)
    text = gpt.generate([1, 2], 41, draft=draft)
    assert text.tolist() == gpt.generate([1, 2], 41).tolist()
    counts = draft.statistics
    assert (counts.passes, counts.written, counts.acceptance) == (8, 40, 1.0)
    assert counts.tokens_per_pass == 5


def draw(logits, keys):
    """A sampler of one's own."""
    return jax.vmap(jax.random.categorical)(keys, 1.5 * logits)


@pytest.mark.parametrize(
    "sampler",
    [TopP(0.9, temperature=1.5, repetition_penalty=1.5), draw],
    ids=["penalty", "function"],
)
def test_a_seed_draws_the_text_without_a_draft(gpt, small, sampler):
    options = {"sampler": sampler, "seed": 5}
    plain = lists(gpt.generate(PROMPTS, 30, **options))
    assert plain != lists(gpt.generate(PROMPTS, 30))
    for draft in (PromptLookup(3, 1, 2), DraftModel(small, 3)):
        assert lists(gpt.generate(PROMPTS, 30, draft=draft, **options)) == plain
        assert draft.statistics.accepted > 0
        alone = gpt.generate(PROMPTS[:1], 30, draft=draft, **options)
        assert lists(alone) == plain[:1]


def test_stops_end_a_row_within_accepted_tokens(gpt):
    draft = DraftModel(gpt, 5)  # of which all are accepted
    plain = lists(gpt.generate(PROMPTS, 30, sampler=TopK(9), seed=4))
    options = {"sampler": TopK(9), "seed": 4, "draft": draft}
    for length in (1, 2):
        for at in range(2, 9):
            stop = [row[at : at + length] for row in plain]
            texts = gpt.generate(PROMPTS, 30, stop=stop, **options)
            expected = gpt.generate(PROMPTS, 30, stop=stop, sampler=TopK(9), seed=4)
            assert lists(texts) == lists(expected)
            assert all(len(text) <= at for text in texts)
    assert len(gpt.generate(PROMPTS[0], 9, stop=plain[0][0], **options)) == 0


def test_a_stream_has_the_pieces_of_the_whole(gpt):
    whole = lists(gpt.generate(PROMPTS, 40))
    for size in (1, 7):
        draft = PromptLookup(4, 1, 3)
        pieces = list(gpt.generate(PROMPTS, 40, stream=size, draft=draft))
        assert max(len(row) for piece in pieces for row in piece) == size
        joined = [np.concatenate(rows).tolist() for rows in zip(*pieces, strict=True)]
        assert joined == whole
        assert draft.statistics.written == 3 * 39


@pytest.mark.parametrize("kind", ["bytes", "word pieces"])
def test_stops_that_are_texts_meet_drafted_tokens(kind):
    tokenizer = KINDS[kind]
    player = Player(tokenizer, attends=True)
    text = "so it is, so it was. User: User so it is, so it was. User: User"
    tokens = tokenizer.encode(text)[:40]
    player.learn(tokens)
    write, stop = player.model.generate, "as."
    draft = PromptLookup(5, 1)
    for options in ({}, {"stop": stop}):
        plain = write(player.PROMPT, len(tokens), **options)
        options["draft"] = draft
        assert write(player.PROMPT, len(tokens), **options) == plain != ""
        for size in (1, 3):
            pieces = write(player.PROMPT, len(tokens), stream=size, **options)
            assert "".join(pieces) == plain
    assert draft.statistics.accepted > 0


def test_a_chat_passes_the_draft_on():
    special = ["<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer.train(["so it is"] * 9, 270, special=special)
    model = tiny(270, sharpness=1, positions=128)
    model.tokenizer = tokenizer.with_chat_template(CHATML)
    messages, draft = [{"role": "user", "content": "Is it so?"}], PromptLookup(4, 1)
    answer = model.chat(messages, 20, draft=draft)
    assert answer == model.chat(messages, 20)
    assert draft.statistics.passes > 0


def test_rows_with_adapters_of_their_own_are_drafted(small):
    model = tiny(positions=64)
    for name in ("one", "two"):
        model.add_lora(rank=2, name=name)
        weights = model.get_weights()
        model.set_weights([w + 0.1 * (w == 0) for w in weights])
    names = ["one", None, "two"]
    plain = lists(model.generate(PROMPTS, 20, adapter=names))
    assert plain != lists(model.generate(PROMPTS, 20))
    for draft in (PromptLookup(3, 1), DraftModel(small, 3)):
        texts = model.generate(PROMPTS, 20, adapter=names, draft=draft)
        assert lists(texts) == plain


def test_the_model_in_four_bits_follows_its_weights(gpt):
    model = gpt.clone()
    session = model._training_session
    model.generate([1, 2], 5, draft="int4")
    kept = session.in_four_bits[1]
    model.generate([1, 2], 5, draft="int4")
    assert session.in_four_bits[1] is kept
    model.set_weights([-w for w in model.get_weights()])
    draft = DraftModel("int4")
    text = model.generate([1, 2], 30, draft=draft)
    assert session.in_four_bits[1] is not kept
    assert text.tolist() == model.generate([1, 2], 30).tolist()
    assert draft.statistics.acceptance > 0.2


def test_windows_and_shared_heads_over_taken_back_tokens():
    exburn.set_random_seed(2)
    options = {"heads": 4, "key_value_heads": 2, "mlp_width": 24}
    model = Llama(WORDS, layers=2, width=16, sliding_window=4, **options)
    model.set_weights([9 * w if w.ndim > 1 else w for w in model.get_weights()])
    draft = PromptLookup(6, 1, 2)
    texts = model.generate(PROMPTS, 30, draft=draft)
    assert lists(texts) == lists(model.generate(PROMPTS, 30, cache=False))
    assert 0 < draft.statistics.accepted < draft.statistics.drafted


def test_half_precision_differs_at_most_by_a_tie():
    exburn.set_random_seed(2)
    model = Llama(WORDS, 1, 16, 4, 2, 24, dtype="bfloat16")
    model.set_weights([6 * w if w.ndim > 1 else w for w in model.get_weights()])
    texts = model.generate(PROMPTS, 40, draft=PromptLookup(4, 1))
    for prompt, one, other in zip(
        PROMPTS, texts, model.generate(PROMPTS, 40), strict=True
    ):
        differ = np.flatnonzero(one != other)
        if not len(differ):
            continue
        seen = [*prompt, *one[: differ[0]].tolist()]
        scores = np.asarray(model(np.array([seen]))[0, -1], "float32")
        first, second = scores[one[differ[0]]], scores[other[differ[0]]]
        assert abs(first - second) <= 2e-2 * np.abs(scores).max()


# ------------------------------------------------------------------ distributions
FEW, LENGTH, ROWS, CALLS = 5, 4, 8192, 4  # 131,072 tokens


def exact_chances(model, prompt, sampler):
    """The probability of each text of ``LENGTH`` tokens, by whole passes."""
    texts = list(itertools.product(range(FEW), repeat=LENGTH))
    ids = np.array([[*prompt, *text] for text in texts])
    logits = jnp.asarray(model.predict(ids, verbose=0, batch_size=len(ids)))
    chances = np.ones(len(texts))
    for place in range(LENGTH):
        at = len(prompt) + place
        scores = logits[:, at - 1]
        if sampler is draw:
            scores = 1.5 * scores
        else:
            seen = (ids[:, :at, None] == np.arange(FEW)).any(1)
            scores = sampler.penalize(scores, jnp.asarray(seen))
            scores = sampler.keep(scores / sampler.temperature)
        share = jax.nn.softmax(scores, axis=-1)
        chances *= np.asarray(share)[np.arange(len(ids)), ids[:, at]]
    return chances


def likelihood(model, sampler, draft, calls=CALLS, seed=0):
    """The chance of counts as unlike the exact probabilities: a chi-squared test."""
    prompt = [1, 2, 3, 1, 2, 3, 1]
    powers = FEW ** np.arange(LENGTH)[::-1]
    counts = np.zeros(FEW**LENGTH)
    for call in range(calls):
        options = {"sampler": sampler, "draft": draft, "seed": seed + call}
        texts = model.generate([prompt] * ROWS, LENGTH, **options)
        counts += np.bincount(np.stack(texts) @ powers, minlength=len(counts))
    expected = exact_chances(model, prompt, sampler) * counts.sum()
    assert expected.sum() == pytest.approx(counts.sum(), rel=1e-4)
    often = expected >= 5
    cells = np.append(counts[often], counts[~often].sum())
    means = np.append(expected[often], expected[~often].sum())
    cells, means = cells[means > 0], means[means > 0]
    value = ((cells - means) ** 2 / means).sum()
    return stats.chi2.sf(value, len(cells) - 1)


SAMPLERS = {
    "all": RandomSampler(temperature=1.3),
    "top_k": TopK(3),
    "penalty": TopP(0.8, repetition_penalty=2.0),
    "min_p": MinP(0.1),
    "function": draw,
}


DRAFTS = {
    "prompt lookup": lambda: PromptLookup(3, 1, 3),
    "model": lambda: DraftModel(tiny(FEW, 8, 4, 8), 3),
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("make", DRAFTS.values(), ids=DRAFTS)
def test_the_distribution_is_the_exact_one(make, name):
    draft = make()
    assert likelihood(tiny(FEW, sharpness=8), SAMPLERS[name], draft) > 1e-3
    assert draft.statistics.accepted > ROWS
    assert draft.statistics.acceptance < 0.9


@pytest.mark.parametrize("name", SAMPLERS)
def test_without_a_draft_it_is_so_too(name):
    sampler = SAMPLERS[name]
    assert likelihood(tiny(FEW, sharpness=8), sampler, None, seed=100) > 1e-3


def accept_one_more(drafts, tokens):
    """A wrong rule: the token after the first rejected one counts as well."""
    right = jnp.cumprod(drafts == tokens[:, :-1], axis=1).sum(axis=1)
    return jnp.minimum(right + 1, drafts.shape[1])


def choose_with_one_key(sampler, key, scores, seen, step):
    """A wrong draw: tokens of one pass share a key."""
    return speculation.choose(sampler, scores, seen, key, step // 2)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("accept", accept_one_more), ("_choose", choose_with_one_key)],
)
def test_wrong_rules_are_seen_in_the_distribution(monkeypatch, name, wrong):
    monkeypatch.setattr(speculation, name, wrong)
    model, draft = tiny(FEW, sharpness=8), PromptLookup(3, 1, 3)
    assert likelihood(model, RandomSampler(temperature=1.3), draft, 1) < 1e-9


# ------------------------------------------------------------------ refusals
def unlike(what):
    """A draft for ``gpt`` that cannot be one."""
    if what == "vocabulary":
        return tiny(WORDS + 1)
    if what == "positions":
        return tiny(positions=20)
    if what == "cache":
        stack = [layers.Embedding(WORDS, 4), layers.LSTM(4, return_sequences=True)]
        stack = [layers.Input((None,), dtype="int32"), *stack, layers.Dense(WORDS)]
        return exburn.Sequential(stack)
    return exburn.Sequential([layers.Input((4,)), layers.Dense(WORDS)])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"draft": "bigrams"}, "draft must be"),
        ({"draft": 4}, "draft must be"),
        ({"draft": TopK(3)}, "draft must be"),
        ({"draft": "ngrams", "beams": 2}, "beams are not drafted"),
        ({"draft": "ngrams", "sampler": Contrastive(3)}, "takes no draft"),
        ({"draft": "ngrams", "cache": False}, "needs a cache"),
        ({"draft": "vocabulary"}, "scores 12 tokens, the model 11"),
        ({"draft": "positions"}, "20 positions, prompt and answer need 33"),
        ({"draft": "cache"}, "draft cannot use a cache: it has no layer"),
        ({"draft": "form"}, "one output of scores"),
    ],
)
def test_what_is_no_draft_is_refused_before_anything_is_compiled(gpt, options, text):
    gpt.generate([1], 1)
    before, draft = traces(gpt), options["draft"]
    if draft in ("vocabulary", "positions", "cache", "form"):
        options = {"draft": unlike(draft)}
    with pytest.raises(ArgumentError, match=text):
        gpt.generate([1], 32, **options)
    assert traces(gpt) == before


def test_models_that_need_other_things_are_refused(gpt):
    with pytest.raises(ArgumentError, match="a draft needs a cache: it has no layer"):
        unlike("cache").generate([1], 3, draft="ngrams")
    with pytest.raises(ArgumentError, match="draft.*quantized already"):
        gpt.quantize("int4").generate([1], 3, draft="int4")
    adapted = tiny()
    adapted.add_lora(rank=2)
    with pytest.raises(ArgumentError, match='draft="int4" is the model in 4 bits'):
        adapted.generate([1], 3, draft="int4")
    one, other = (Tokenizer.train(["so it is"] * 9, size) for size in (260, 262))
    model, draft = tiny(262, sharpness=1), tiny(262, sharpness=1)
    model.tokenizer, draft.tokenizer = one, other
    with pytest.raises(ArgumentError, match="tokenizer, and it has another"):
        model.generate([1], 3, draft=draft)


def test_greedy_says_what_it_is_asked(gpt):
    penalty = Greedy(repetition_penalty=4.0)
    plain = gpt.generate(PROMPTS, 20, sampler=penalty)
    drafted = gpt.generate(PROMPTS, 20, sampler=penalty, draft=PromptLookup(3, 1))
    assert lists(drafted) == lists(plain)
