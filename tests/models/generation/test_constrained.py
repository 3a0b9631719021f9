"""Answers held to a form: by any sampler, in batches and streams, to their end."""

import json
import pickle
import random
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn.applications import GPT2
from exburn.errors import ArgumentError, DataError, IncompleteAnswerError
from exburn.text import (
    CHATML,
    Contrastive,
    Greedy,
    MinP,
    RandomSampler,
    Tokenizer,
    TopK,
    TopP,
)
from exburn.text.constraints import TextConstraint

tokenizers = pytest.importorskip("tokenizers")
jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("llguidance")

from tests.text.random_schemas import RandomSchema  # noqa: E402

TEXTS = ['{"name": "so it is", "age": 3} yes or no [true, null] 日本 é 😀'] * 9
SPECIAL = ["<|im_start|>", "<|im_end|>"]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
LONG = 160


@pytest.fixture(scope="module")
def model():
    tokenizer = Tokenizer.train(TEXTS, 340, special=SPECIAL)
    exburn.set_random_seed(3)
    size = tokenizer.vocabulary_size + 9  # the scores of some tokens have no text
    model = GPT2(size, layers=1, width=16, heads=2, positions=512)
    model.set_weights([6 * w if w.ndim > 1 else w for w in model.get_weights()])
    model.tokenizer = tokenizer.with_chat_template(CHATML)
    return model


@pytest.fixture(scope="module")
def letters():
    """A model whose tokens are single letters, any of which may come."""
    names = ["</s>", *"abcdefgh"]
    engine = tokenizers.Tokenizer(
        tokenizers.models.BPE({name: n for n, name in enumerate(names)}, [])
    )
    engine.decoder = tokenizers.decoders.Fuse()
    engine.add_special_tokens(["</s>"])
    exburn.set_random_seed(3)
    model = GPT2(len(names), layers=1, width=16, heads=2, positions=64)
    model.set_weights([12 * w if w.ndim > 1 else w for w in model.get_weights()])
    model.tokenizer = Tokenizer(engine.to_str())
    return model


SAMPLERS = {
    "greedy": None,
    "random": RandomSampler(),
    "top k": TopK(3, temperature=0.7),
    "top p": TopP(0.8),
    "min p": MinP(0.1),
    "penalty": Greedy(repetition_penalty=1.7),
    "function": lambda logits, keys: logits.argmax(-1).astype(jnp.int32),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_form_that_allows_all_changes_nothing(letters, name):
    prompts = ["ab", "cdefg", "h"]
    for options in ({}, {"cache": False}) if name == "top p" else ({},):
        options |= {"sampler": SAMPLERS[name], "seed": 5}
        plain = letters.generate(prompts, 20, **options)
        assert letters.generate(prompts, 20, regex="[a-h]*", **options) == plain
    assert len({*plain}) == 3


def test_the_likeliest_allowed_token_comes(letters):
    allowed = [letters.tokenizer.number_of(letter) for letter in "ceg"]
    tokens = letters.tokenizer.encode("ab").tolist()
    for _ in range(8):
        scores = letters.predict_on_batch(np.array([tokens + [0] * (24 - len(tokens))]))
        scores = scores[0, len(tokens) - 1]
        tokens.append(max(allowed, key=lambda token: scores[token]))
    answer = letters.generate("ab", 8, regex="[ceg]{8}")
    assert answer == letters.tokenizer.decode(tokens[2:])


def test_rows_have_the_form_alone_in_company_and_in_streams(model):
    prompts = ["so", "it is", "yes or no"]
    options = {"sampler": RandomSampler(), "seed": 7, "schema": SCHEMA}
    answers = model.generate(prompts, LONG, **options)
    for answer in answers:
        jsonschema.validate(json.loads(answer), SCHEMA)
    assert len({*answers}) == 3
    assert model.generate("so", LONG, **options) == answers[0]
    for size in (1, 7):
        pieces = list(model.generate(prompts, LONG, stream=size, **options))
        assert ["".join(row) for row in zip(*pieces, strict=True)] == answers
    whole = model.generate(prompts, LONG, include_prompt=True, **options)
    assert whole == [p + a for p, a in zip(prompts, answers, strict=True)]
    rows = [model.tokenizer.encode(prompt) for prompt in prompts]
    tokens = model.generate(rows, LONG, **options)
    assert [model.tokenizer.decode(row) for row in tokens] == answers


def test_another_form_is_no_other_program(model):
    model.generate("so", 20, regex="yes|no")
    before = dict(model._training_session.trainer.preparer.program_cache.trace_counts)
    assert model.generate("so", 20, regex="(maybe|never)!") in ("maybe!", "never!")
    model.generate("so", 40, grammar='start: "(" start ")" | "x"', sampler=None)
    after = model._training_session.trainer.preparer.program_cache.trace_counts
    assert dict(after) == before


def test_a_chat_ends_by_the_token_of_its_template(model):
    chat = [{"role": "user", "content": "so?"}]
    options = {"sampler": RandomSampler(), "seed": 1}
    answer = model.chat(chat, LONG, schema=SCHEMA, **options)
    jsonschema.validate(json.loads(answer), SCHEMA)
    end = model.tokenizer.number_of("<|im_end|>")

    def ends(logits, keys):  # as soon as it may
        return logits.at[:, end].add(1e6).argmax(-1).astype(jnp.int32)

    for seed in range(3):
        answer = model.chat(chat, LONG, regex="[a-c]{2,9}", sampler=ends, seed=seed)
        assert re.fullmatch("[a-c]{2}", answer)


def test_an_answer_that_is_cut_is_told(model):
    sampler = RandomSampler(temperature=30)
    options = {"sampler": sampler, "seed": 1, "regex": "[ab]{3}|[AB]{90}"}
    with pytest.raises(IncompleteAnswerError, match="max_new_tokens: 3") as caught:
        model.generate(["so"] * 8, 3, **options)
    error = caught.value
    complete = [bool(re.fullmatch("[ab]{3}", text)) for text in error.answers]
    assert [not flag for flag in complete] == [n in error.rows for n in range(8)]
    assert 0 < len(error.rows) < 8
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.answers, copy.rows) == (error.answers, error.rows)
    pieces = []
    with pytest.raises(IncompleteAnswerError, match="have the form"):
        for piece in model.generate(["so"] * 8, 3, stream=1, **options):
            pieces.append(piece)
    assert ["".join(row) for row in zip(*pieces, strict=True)] == error.answers


def test_half_a_letter_is_no_complete_answer(model):
    def first_byte(logits, keys):  # of three
        return jnp.where(jnp.arange(logits.shape[-1]) == byte, 9, 0).argmax(
            -1
        ) * jnp.ones(len(logits), jnp.int32)

    byte = model.tokenizer.number_of("æ")
    with pytest.raises(IncompleteAnswerError):
        model.generate("so", 1, regex="(?s).*", sampler=first_byte)


def test_stops_cut_what_must_still_have_the_form(model):
    options = {"sampler": RandomSampler(), "seed": 3}
    lines = r"[ab]+(\n[ab]+)*"
    answer = model.generate("so", 60, regex=lines, stop="\n", **options)
    assert re.fullmatch("[ab]+", answer)
    number = model.tokenizer.number_of("Ċ")
    assert model.generate("so", 60, regex=lines, stop=number, **options) == answer
    tokens = model.generate([5], 60, regex=lines, stop=number, **options)
    assert re.fullmatch("[ab]+", model.tokenizer.decode(tokens))
    with pytest.raises(IncompleteAnswerError):
        model.generate("so", 60, regex="yes\nno", stop="\n")


def test_an_empty_answer_may_have_the_form(model):
    assert model.generate("so", 5, regex="") == ""
    assert model.generate([1, 2], 5, regex="").shape == (0,)


def test_scores_that_are_no_numbers_leave_the_form(model):
    other = exburn.models.clone_model(model)
    other.set_weights([np.full_like(w, np.nan) for w in model.get_weights()])
    other.tokenizer = model.tokenizer
    for sampler in (None, RandomSampler(), TopP(0.5)):
        answer = other.generate("so", 9, regex="[a-z]{3}", sampler=sampler, seed=1)
        assert re.fullmatch("[a-z]{3}", answer)


def test_a_sampler_that_takes_what_is_masked_is_told(model):
    def any_token(logits, keys):
        return jnp.full(len(logits), 7, jnp.int32)

    with pytest.raises(DataError, match="does not allow token 7"):
        model.generate("so", 9, regex="[a-z]{3}", sampler=any_token)


def test_a_model_with_fewer_scores_than_tokens_writes_what_it_can(model):
    exburn.set_random_seed(3)
    small = GPT2(200, layers=1, width=8, heads=2, positions=64)
    small.tokenizer = model.tokenizer
    answer = small.generate([1, 2], 30, regex="[a-z ]{9}")
    assert answer.max() < 200


REQUESTS = [
    (dict(regex="a", schema={}), "received schema, regex"),
    (dict(regex="a", beams=2), "without beams"),
    (dict(regex="a", sampler=Contrastive()), "without contrastive search"),
    (dict(regex="a", draft="ngrams"), "without draft"),
    (dict(schema={"type": "string", "contains": {}}), "'contains' is not honoured"),
    (dict(regex="(?=a)"), "look-around"),
]


@pytest.mark.parametrize("options, message", REQUESTS)
def test_what_cannot_be_is_refused(model, options, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        model.generate("so", 5, **options)


def test_a_model_without_a_tokenizer_is_refused(model):
    other = GPT2(9, layers=1, width=8, heads=2, positions=32)
    with pytest.raises(ArgumentError, match="the model's tokenizer"):
        other.generate([1, 2], 5, regex="a")


def closing(model):
    """A sampler that ends values soon, so that most answers have an end."""
    tokenizer = model.tokenizer
    names = [tokenizer.token_of(n) or "" for n in range(tokenizer.vocabulary_size)]
    bonus = np.array([2.0 if name[:1] in '"}],' else 0.0 for name in names] + [0] * 9)
    bonus[tokenizer.number_of("<|endoftext|>")] = 3.0

    def sample(logits, keys):
        return jax.vmap(jax.random.categorical)(keys, logits * 0.05 + bonus)

    return sample


def check_random_schemas(model, seeds):
    """Counts of answers of random schemas: valid ones, and those without an end."""
    sampler, counts = closing(model), {"valid": 0, "cut": 0, "refused": 0}
    for seed in seeds:
        schema, value = RandomSchema(random.Random(seed)).draw()
        validator = jsonschema.Draft202012Validator(
            schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
        )
        validator.validate(value)
        try:
            constraint = TextConstraint.compile(model.tokenizer, json_schema=schema)
        except ArgumentError as error:
            assert "listed in" in error.details["cause"], seed
            counts["refused"] += 1
            continue
        for layout in ({}, {"separators": (",", ":")}, {"indent": 2}):
            assert constraint.allows(json.dumps(value, ensure_ascii=False, **layout))
        options = {"schema": schema, "sampler": sampler, "seed": seed}
        try:
            answer = model.generate("so", 256, room=(16, 256), **options)
        except IncompleteAnswerError:
            counts["cut"] += 1
            continue
        validator.validate(json.loads(answer))
        counts["valid"] += 1
    return counts


def test_answers_of_random_schemas_are_valid(model):
    counts = check_random_schemas(model, range(40))
    assert counts["valid"] > 30


def test_answers_of_ten_thousand_random_schemas_are_valid(model):
    counts = check_random_schemas(model, range(10_000))
    assert counts["valid"] > 9_000
