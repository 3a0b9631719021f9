"""Tests of ``exburn.text.gguf_tokenizer``."""

import json

import pytest

from exburn.errors import FileFormatError
from exburn.text import Tokenizer
from exburn.text.gguf_tokenizer import gguf_tokenizer

TEXTS = ["It's 12345 so it is,  so it was\n\n", "Ünïcode 日本 \u00e9 e\u0301 don't  "]


def facts_of(**changes):
    """What a file says of a tokenizer that is trained here."""
    trained = Tokenizer.train(TEXTS * 20, 300, end="<|end|>", special=["<|bos|>"])
    model = json.loads(trained._text)["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    facts = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "merges": merges,
        "token_type": [3 if token.startswith("<|") else 1 for token in tokens],
        "eos_token_id": tokens.index("<|end|>"),
        "bos_token_id": tokens.index("<|bos|>"),
    } | changes
    return {f"tokenizer.ggml.{key}": v for key, v in facts.items()}, trained


def test_byte_pairs_are_those_of_the_tokenizer_that_was_converted():
    facts, trained = facts_of()
    found = gguf_tokenizer(facts, "load")
    for text in [*TEXTS, "other<|end|> words"]:
        assert list(found.encode(text)) == list(trained.encode(text))
        assert found.decode(found.encode(text)) == trained.decode(trained.encode(text))
    assert found.end == "<|end|>"


def test_texts_are_cut_as_the_file_says():
    numbers = {}
    for pre in ("gpt-2", "llama-bpe", "qwen2"):
        facts, _ = facts_of(pre=pre)
        found = gguf_tokenizer(facts, "load")
        numbers[pre] = list(found.encode("12345 it"))
        assert found.decode(found.encode(TEXTS[0])).endswith(TEXTS[0])
    bos = facts["tokenizer.ggml.bos_token_id"]
    assert numbers["llama-bpe"][0] == bos and numbers["qwen2"][0] != bos
    facts["tokenizer.ggml.add_bos_token"] = True
    assert list(gguf_tokenizer(facts, "load").encode("it"))[0] == bos


def test_a_template_of_chats_is_the_tokenizers():
    facts, _ = facts_of()
    template = "{% for m in messages %}{{ m['content'] }}{{ eos_token }}{% endfor %}"
    found = gguf_tokenizer(facts | {"tokenizer.chat_template": template}, "load")
    text = found.chat_template.render([{"role": "user", "content": "hi"}])
    assert "hi<|end|>" in str(text)


def test_vocabularies_of_other_kinds_are_named():
    facts, _ = facts_of(model="llama")
    with pytest.warns(UserWarning, match="'llama', cut by 'gpt-2'.*is not read"):
        assert gguf_tokenizer(facts, "load") is None
    assert gguf_tokenizer({}, "load") is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"tokens": 3}, "tokens must be a list"),
        ({"tokens": ["a", "a"]}, "not all different"),
        ({"token_type": [1]}, "not all have a kind"),
        ({"merges": ["abc"]}, "pairs of tokens"),
        ({"eos_token_id": 10**6}, "eos_token_id is 1000000"),
    ],
)
def test_facts_that_contradict_each_other_are_refused(changes, text):
    facts, _ = facts_of(**changes)
    with pytest.raises(FileFormatError, match=text):
        gguf_tokenizer(facts, "load")
