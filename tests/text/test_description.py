"""Descriptions of tokenizers: published ones pass, others are refused by name."""

import json

import pytest
from tests.bombs import tokenizers as bombs

from exburn.errors import FileFormatError
from exburn.text import Tokenizer
from exburn.text.description import _explodes, check_description

PUBLISHED = {
    "clip": r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+"
    r"|[\p{N}]|[^\s\p{L}\p{N}]+",
    "gpt-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
    r"|\s+",
    "llama-3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+",
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "digits from the right": r"\d{1,3}(?=(?:\d{3})*\b)",
    "han": r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}&&[^\p{Han}]]*[\p{Ll}&&[^\p{Han}]]+",
    "spaces": r" {2,}",
}
HOSTILE = (
    *("(a+)+", "(a*)*", "(?:a|a)*b", "(a+){2,}", "((a+)b)+", "(a{2,}){5}", "(a+)*?"),
    *("(?=(a+)+)", "x(?:[(]a+)*", r"(\)+)+", "a*a*a*a*a*b", "([^]]+)+", "(a|b){9}"),
)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_expressions_are_none_that_explode(name):
    assert not _explodes(PUBLISHED[name])


@pytest.mark.parametrize("pattern", HOSTILE)
def test_repetitions_of_repetitions_are_found(pattern):
    assert _explodes(pattern)


def test_published_normalizers_pass():
    """Those of Llama, Gemma, T5, ALBERT and BERT, and what they may make of texts."""
    steps = [
        [{"type": "Prepend", "prepend": "▁"}, bombs.replacement(" ", "▁")],
        [bombs.replacement(" ", "▁")],
        [{"type": "NFC"}],
        [
            *(bombs.replacement("``", '"'), bombs.replacement("''", '"')),
            *({"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}),
            bombs.replacement(" {2,}", " ", "Regex"),
        ],
        [{"type": "BertNormalizer", "clean_text": True}],
    ]
    for step in steps:
        described = bombs.GOOD | {"normalizer": bombs.sequence("normalizers", step)}
        assert check_description(described).normalizer <= 108


def test_what_multiplies_is_named():
    def refused(match, **parts):
        with pytest.raises(FileFormatError, match=match):
            Tokenizer(json.dumps(bombs.GOOD | parts))

    refused("normalizers may multiply", **bombs.PARTS["forty doublings"])
    refused("decoders may multiply", **bombs.PARTS["a decoder that doubles"])
    refused("template may multiply", **bombs.PARTS["templates of templates"])
    refused(r"expression .*: '\(a\+\)\+", **bombs.PARTS["repetitions of repetitions"])
    refused(
        "from 0 to 2147483647, the file has 2147483648", **bombs.PARTS["a large number"]
    )
    refused("words may have 1000", **bombs.PARTS["long words"])


def test_what_grows_is_measured(tmp_path):
    tokenizer = Tokenizer.load(bombs.BOMBS["twelve doublings"](tmp_path))
    assert len(tokenizer.encode("b" * 200_000)) == 1  # it does not grow
    assert len(tokenizer.encode("a")) == 1
    with pytest.raises(FileFormatError, match="of a text of 2,000"):
        tokenizer.encode("a" * 2000)
    tokenizer = Tokenizer.load(bombs.BOMBS["a long token"](tmp_path))
    assert len(tokenizer.decode([2] * 4)) == 4 * 4_000_000 + 3
    with pytest.raises(FileFormatError, match="characters of 5 tokens"):
        tokenizer.decode([2] * 5)
