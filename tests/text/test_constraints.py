"""Texts held to a form: which tokens may come, and what is refused."""

import dataclasses
import json
import random
import re
import sys
import typing

import numpy as np
import pytest
import typing_extensions
from tests.text.random_expressions import random_expression, random_grammar

from exburn.errors import (
    ArgumentError,
    DataError,
    FileFormatError,
    MissingDependencyError,
)
from exburn.text import TextConstraint, Tokenizer, constraints

tokenizers = pytest.importorskip("tokenizers")
jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("llguidance")

TEXTS = ['{"name": "so it is", "age": 3} yes or no [true, null] 日本 é 😀'] * 9
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z日é]{1,4}$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "kind": {"enum": ["<|endoftext|>", "日本", "😀", 1.5, None]},
    },
    "required": ["name", "kind"],
    "additionalProperties": False,
}


def byte_level():
    return Tokenizer.train(TEXTS, 340)


def of_letters(kind):
    """A tokenizer of single letters, of pairs of them, and of what decoders need."""
    package = tokenizers
    letters = sorted({*map(chr, range(33, 127)), *"日本é"})
    pairs = ["na", "me", '":', "ag", "or", "tr", "ue", "ul"]
    names = ["<unk>", "</s>"]
    decoders = package.decoders
    if kind == "word pieces":
        names += [*letters, *pairs, *("##" + text for text in [*letters, *pairs])]
        engine = package.models.WordPiece(
            {name: n for n, name in enumerate(names)}, unk_token="<unk>"
        )
        decoder = decoders.WordPiece(cleanup=False)
    else:
        names += [f"<0x{byte:02X}>" for byte in range(256)]
        names += ["▁", *letters, *pairs, '▁"', "▁name"]
        if kind == "unigram":
            engine = package.models.Unigram(
                [(name, -1.0) for name in names], 0, byte_fallback=True
            )
            decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
        else:
            vocabulary = {name: n for n, name in enumerate(names)}
            engine = package.models.BPE(vocabulary, [], byte_fallback=True)
            decoder = decoders.Sequence(
                [
                    decoders.Replace("▁", " "),
                    decoders.ByteFallback(),
                    decoders.Fuse(),
                    decoders.Strip(" ", 1, 0),
                ]
            )
    result = package.Tokenizer(engine)
    result.decoder = decoder
    result.add_special_tokens(["</s>"])
    return Tokenizer(result.to_str())


KINDS = {
    "byte level": byte_level,
    "sentence pieces": lambda: of_letters("sentence pieces"),
    "unigram": lambda: of_letters("unigram"),
    "word pieces": lambda: of_letters("word pieces"),
}


def allowed(mask):
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return np.flatnonzero(bits).tolist()


def walk(constraint, seed, most=400):
    """Text and tokens of a random way through a form; a text is ``None`` if cut."""
    draw, matcher = random.Random(seed), constraint.start()
    reader, tokens, text = constraint.reader(), [], ""
    while len(tokens) < most:
        choices = allowed(matcher.mask())
        if matcher.has_ended:
            break
        token = draw.choice(choices)
        matcher.accept(token)
        if matcher.has_ended and token in constraint._ends:
            break
        tokens.append(token)
        text += reader.add(token)
    return (text + reader.rest() if matcher.complete else None), tokens


@pytest.mark.parametrize("kind", KINDS)
def test_any_way_through_a_schema_ends_in_a_valid_text(kind):
    tokenizer = KINDS[kind]()
    constraint = TextConstraint.compile(tokenizer, json_schema=SCHEMA)
    texts = []
    for seed in range(20):
        text, tokens = walk(constraint, seed)
        assert not {*tokens} & tokenizer.special_numbers
        if text is not None:
            jsonschema.validate(json.loads(text), SCHEMA)
            texts.append(text)
    assert len({*texts}) > 5


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_of_tokens_is_what_the_tokenizer_decodes(kind):
    tokenizer = KINDS[kind]()
    constraint = TextConstraint.compile(tokenizer, json_schema=SCHEMA)
    for seed in range(20):
        text, tokens = walk(constraint, seed)
        if text is not None:
            assert tokenizer.decode(tokens) == text


@pytest.mark.parametrize("kind", KINDS)
def test_a_valid_text_is_accepted_token_by_token(kind):
    constraint = TextConstraint.compile(KINDS[kind](), json_schema=SCHEMA)
    value = {"name": "é日a", "age": 7, "kind": "日本"}
    separators = [(",", ":"), (", ", ": ")]
    for between in separators if kind != "word pieces" else []:
        text = json.dumps(value, ensure_ascii=False, separators=between)
        assert constraint.allows(text)
        assert not constraint.allows(text[:-1])
        assert not constraint.allows(text + " ")
        assert not constraint.allows(" " + text)
    if kind == "byte level":
        assert constraint.allows(json.dumps(value, indent=4, ensure_ascii=False))
        assert not constraint.allows(json.dumps({**value, "age": 121}))


def test_ends_come_where_a_text_is_complete_and_special_tokens_never():
    tokenizer = Tokenizer.train(TEXTS, 340, special=["<|pad|>"])
    end, pad = map(tokenizer.number_of, ("<|endoftext|>", "<|pad|>"))
    matcher = TextConstraint.compile(tokenizer, regex="(é|a)+").start()
    assert end not in allowed(matcher.mask())
    for token in tokenizer.encode("é").tolist():
        assert not matcher.complete
        matcher.accept(token)
    assert end in allowed(matcher.mask())
    assert pad not in allowed(matcher.mask())
    assert matcher.complete and not matcher.has_ended
    other = matcher.copy()
    matcher.accept(end)
    assert matcher.has_ended and not other.has_ended
    other.accept(tokenizer.number_of("a"))
    for token in (pad, tokenizer.number_of("b"), -1, 10**9):
        with pytest.raises(DataError, match="does not allow"):
            other.accept(token)
    with pytest.raises(DataError, match="does not allow"):
        matcher.accept(tokenizer.number_of("a"))


def test_an_end_that_is_an_ordinary_token_comes_at_the_end_alone():
    tokenizer = byte_level()
    b = tokenizer.number_of("b")
    matcher = TextConstraint.compile(tokenizer, regex="a[bc]*", ends=(b,)).start()
    matcher.accept(tokenizer.number_of("a"))
    assert {b, tokenizer.number_of("c")} == {*allowed(matcher.mask())}
    matcher.accept(b)
    assert matcher.has_ended


def test_a_mask_may_have_the_size_of_a_models_scores():
    tokenizer = byte_level()
    matcher = TextConstraint.compile(tokenizer, regex="(?s).*").start()
    mask = matcher.mask()
    wide = matcher.mask(np.full(len(mask) + 3, 2**32 - 1, np.uint32))
    assert (wide[: len(mask)] == mask).all() and not wide[len(mask) :].any()
    narrow = matcher.mask(np.zeros(2, np.uint32))
    assert (narrow == mask[:2]).all()
    assert max(allowed(mask)) < tokenizer.vocabulary_size


def test_masks_computed_side_by_side_are_those_of_each(monkeypatch):
    monkeypatch.setattr(constraints.os, "cpu_count", lambda: 8)
    tokenizer = Tokenizer.train(["yes or no"] * 9, 260)
    forms = ("a*", "b|cd", "", "(yes|no)+", "[^a]{3}")
    matchers = [TextConstraint.compile(tokenizer, regex=f).start() for f in forms]
    matchers[3].accept(tokenizer.number_of("y"))
    alone = [matcher.copy().mask() for matcher in matchers]
    constraints.compute_masks([*matchers, None])  # of a text without a form
    together = [matcher.mask() for matcher in matchers]
    np.testing.assert_array_equal(together, alone)
    assert matchers[2].has_ended and len({mask.tobytes() for mask in alone}) == 5


def test_a_form_without_more_than_its_end_has_ended():
    matcher = TextConstraint.compile(byte_level(), regex="").start()
    matcher.mask()
    assert matcher.has_ended and matcher.complete


def compiled(**form):
    return TextConstraint.compile(byte_level(), **form)


def chain_of_references(length):
    """A schema in whose references the package would use up its stack."""
    parts = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(length)}
    parts |= {f"d{length}": {"type": "integer"}}
    return {"$ref": "#/$defs/d0", "$defs": parts}


REFUSALS = [
    (lambda: compiled(regex="(?=a)b"), ArgumentError, re.escape("look-around")),
    (lambda: compiled(regex="(a)\\1"), ArgumentError, re.escape("backreferences")),
    (lambda: compiled(regex="\\bfoo"), ArgumentError, re.escape("not honoured")),
    (lambda: compiled(regex="a++"), ArgumentError, re.escape("possessive")),
    (
        lambda: compiled(regex="[[a]]"),
        ArgumentError,
        re.escape("no expression of `re`"),
    ),
    (
        lambda: compiled(regex="\\p{L}"),
        ArgumentError,
        re.escape("no expression of `re`"),
    ),
    (lambda: compiled(regex="("), ArgumentError, re.escape("no expression of `re`")),
    (
        lambda: compiled(regex="[^\\s\\S]"),
        ArgumentError,
        re.escape("no text has this form"),
    ),
    (
        lambda: compiled(grammar='start: "a" foo'),
        ArgumentError,
        re.escape("unknown name"),
    ),
    (lambda: compiled(grammar="xx"), ArgumentError, re.escape("Expected token ':'")),
    (
        lambda: compiled(grammar="xx", regex="a"),
        ArgumentError,
        re.escape("one of json_schema"),
    ),
    (lambda: compiled(), ArgumentError, re.escape("one of json_schema")),
    (
        lambda: compiled(json_schema=3),
        ArgumentError,
        re.escape("a mapping, its text, or a class"),
    ),
    (
        lambda: compiled(json_schema=type("Odd", (), {})),
        ArgumentError,
        re.escape("`pydantic` has no schema of"),
    ),
    (lambda: compiled(json_schema="{"), ArgumentError, re.escape("no valid JSON")),
    (
        lambda: compiled(json_schema={"not": {}}),
        ArgumentError,
        re.escape("'not' is not honoured"),
    ),
    (
        lambda: compiled(json_schema={"items": {"minimun": 3}}),
        ArgumentError,
        re.escape("'minimun' is not honoured"),
    ),
    (
        lambda: compiled(json_schema={"x-guidance": {}}),
        ArgumentError,
        re.escape("'x-guidance' is not"),
    ),
    (
        lambda: compiled(json_schema={"type": "string", "format": "q"}),
        ArgumentError,
        re.escape("Unknown format"),
    ),
    (
        lambda: compiled(json_schema={"items": [{}]}),
        ArgumentError,
        re.escape("an object, true or false"),
    ),
    (
        lambda: compiled(
            json_schema={"$schema": "http://json-schema.org/draft-04/schema#"}
        ),
        ArgumentError,
        re.escape("a schema is as a whole of"),
    ),
    (lambda: compiled(json_schema=False), ArgumentError, re.escape("Unsatisfiable")),
    (
        lambda: compiled(json_schema={"enum": []}),
        ArgumentError,
        re.escape("Unsatisfiable"),
    ),
    (
        lambda: compiled(json_schema={"type": "integer", "minimum": 5, "maximum": 3}),
        ArgumentError,
        re.escape("greater than maximum"),
    ),
    (
        lambda: compiled(json_schema={"$ref": "#"}),
        ArgumentError,
        re.escape("without end"),
    ),
    (
        lambda: compiled(
            json_schema={
                "type": "object",
                "properties": {"a": {"$ref": "#"}},
                "required": ["a"],
            }
        ),
        ArgumentError,
        re.escape("without end"),
    ),
    (
        lambda: compiled(json_schema='{"items":' * 200 + "{}" + "}" * 200),
        ArgumentError,
        re.escape("too deeply nested"),
    ),
    (
        lambda: compiled(json_schema={"$ref": "#/default", "default": {"minimun": 3}}),
        ArgumentError,
        "a reference must lead to a part of the schema",
    ),
    (
        lambda: compiled(
            json_schema={"anyOf": [{"multipleOf": 9.97}, {"multipleOf": 991}]}
        ),
        ArgumentError,
        "the common multiple 988027",
    ),
    (
        lambda: compiled(json_schema={"$ref": "http://x/y"}),
        ArgumentError,
        "a reference must lead to a part of the schema",
    ),
    (lambda: compiled(json_schema={"multipleOf": []}), ArgumentError, "not honoured"),
    (lambda: compiled(json_schema={"const": 2**53 + 1}), ArgumentError, "2..53"),
    (lambda: compiled(json_schema={"title": "\ud800"}), ArgumentError, "surrogates"),
    (
        lambda: compiled(json_schema={"type": "number", "maximum": float("inf")}),
        ArgumentError,
        "Out of range float",
    ),
    (
        lambda: compiled(
            json_schema={"$schema": "draft-07", "prefixItems": [{"type": "null"}]}
        ),
        ArgumentError,
        "prefixItems is of 2020-12",
    ),
    (
        lambda: compiled(json_schema=chain_of_references(2_000)),
        ArgumentError,
        "references are 2003 levels deep, at most 1000",
    ),
    (
        lambda: compiled(grammar="start: r\n" + "r: start\n" * 3_000),
        ArgumentError,
        "3001 rules, at most 500",
    ),
    (
        lambda: compiled(grammar='start: %json {"type": "integer", "minimun": 3}'),
        ArgumentError,
        "'minimun' is not honoured",
    ),
    (
        lambda: compiled(grammar='%llguidance {"no_forcing": false}\nstart: "a"'),
        ArgumentError,
        "options of the package",
    ),
    (lambda: compiled(regex="a" * 300_000), ArgumentError, "300,000 letters, at most"),
]


def test_a_tokenizer_that_cannot_write_the_form_is_refused():
    package = tokenizers
    engine = package.Tokenizer(package.models.BPE({"a": 0, "b": 1}, []))
    engine.decoder = package.decoders.Fuse()
    tokenizer = Tokenizer(engine.to_str())
    with pytest.raises(ArgumentError, match="no token begins it"):
        TextConstraint.compile(tokenizer, regex="c")
    matcher = TextConstraint.compile(tokenizer, regex="[ab]c").start()
    matcher.accept(0)
    with pytest.raises(DataError):
        matcher.mask()


def test_a_tokenizer_with_ends_of_words_is_refused():
    engine = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0}, []))
    engine.decoder = tokenizers.decoders.BPEDecoder()
    with pytest.raises(FileFormatError, match="BPEDecoder"):
        TextConstraint.compile(Tokenizer(engine.to_str()), regex="a")


def test_a_missing_package_is_named_with_its_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(MissingDependencyError, match=r"exburn\[structured\]"):
        TextConstraint.compile(Tokenizer.train(["a b"] * 9, 257), regex="[ab]cd")


@dataclasses.dataclass
class Person:
    name: str
    age: int


class Place(typing_extensions.TypedDict):
    town: str


def test_classes_are_schemas():
    pydantic = pytest.importorskip("pydantic")

    class Answer(pydantic.BaseModel):
        kind: typing.Literal["yes", "no"]
        why: str | None = pydantic.Field(default=None, max_length=3)

    texts = {Person: '{"name":"é","age":3}', Place: '{"town":"日"}'}
    texts[Answer] = '{"kind":"no","why":"abc"}'
    for cls, text in texts.items():
        constraint = TextConstraint.compile(byte_level(), json_schema=cls)
        assert constraint.allows(text)
        assert not constraint.allows(text.replace("}", "d}"))


def test_grammars_are_those_of_lark():
    grammar = """
        start: sum
        sum: product ("+" product)*
        product: value ("*" value)*
        value: NUMBER | "(" sum ")"
        NUMBER: /[1-9][0-9]{0,2}/
    """
    constraint = TextConstraint.compile(byte_level(), grammar=grammar)
    assert constraint.allows("1+20*(3+4)") and not constraint.allows("1+")
    complete = 0
    for seed in range(20):
        text, _ = walk(constraint, seed, 60)
        if text is not None:
            assert set(text) <= set("0123456789+*()")
            eval(text)
            complete += 1
    assert complete > 5


def sample(constraint, seed, most=60):
    """A text of a form, drawn token by token, or ``None`` if it has no end so soon."""
    draw, matcher, reader = random.Random(seed), constraint.start(), constraint.reader()
    text = ""
    for _ in range(most):
        choices = allowed(matcher.mask())
        ends = [token for token in choices if token in constraint._ends]
        if matcher.has_ended or ends and draw.random() < 0.4:
            break
        token = draw.choice([token for token in choices if token not in ends])
        matcher.accept(token)
        text += reader.add(token)
        if matcher.has_ended:
            break
    return text + reader.rest() if matcher.complete else None


def check_random_forms(seeds):
    """Numbers of texts of random expressions and grammars, all of which match."""
    tokenizer, counts = byte_level(), {"regex": 0, "grammar": 0}
    for seed in seeds:
        expression = random_expression(random.Random(seed))
        grammar, same = random_grammar(random.Random(seed))
        for kind, form, pattern in (
            ("regex", expression, expression),
            ("grammar", grammar, same),
        ):
            constraint = TextConstraint.compile(tokenizer, **{kind: form})
            text = sample(constraint, seed)
            if text is not None:
                assert re.fullmatch(pattern, text, re.ASCII), (seed, form, text)
                assert constraint.allows(text), (seed, form, text)
                counts[kind] += 1
    return counts


def test_texts_of_random_expressions_and_grammars_match():
    assert min(check_random_forms(range(60)).values()) > 40


def test_texts_of_thousands_of_random_expressions_and_grammars_match():
    assert min(check_random_forms(range(60, 1_000)).values()) > 800


def test_bytes_that_alone_may_come_do_not_keep_the_package_busy():
    grammar = 'start: R{2} /[+]é/+ /[^a-z+]/\nR: "+"* "+" "+" | /[a-f]/* "bc"+'
    tokenizer = byte_level()
    matcher = TextConstraint.compile(tokenizer, grammar=grammar).start()
    for letter in "bcbc+":
        matcher.accept(tokenizer.number_of(letter))
    tokens = {tokenizer.token_of(token) for token in allowed(matcher.mask())}
    assert tokens == {"+"}  # and so on without end: R takes all of them


def test_a_grammar_may_ask_for_itself():
    constraint = TextConstraint.compile(
        byte_level(), grammar='start: "(" start ")" start | ""'
    )
    for seed in range(20):
        text = sample(constraint, seed)
        if text is not None:
            while "()" in text:
                text = text.replace("()", "")
            assert text == ""


def test_bits_of_letters_and_cases_are_those_of_ascii():
    tokenizer = byte_level()
    constraint = TextConstraint.compile(tokenizer, regex=r"\d\w\s\W")
    assert constraint.allows("3_ !")
    assert not constraint.allows("٣_ !")
