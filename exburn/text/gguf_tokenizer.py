"""The tokenizer that the facts of a GGUF file describe."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exburn.errors import FileFormatError
from exburn.text.folder import CONFIG_FILE, TOKENIZER
from exburn.text.tokenizer import Tokenizer

_FACTS = "tokenizer.ggml."
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+"
    r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# How texts are cut before their bytes are joined, by llama.cpp's names; None: as GPT-2.
_CUTS = {
    "gpt-2": None,
    "llama-bpe": _WORDS % r"\p{N}{1,3}",
    "qwen2": _WORDS % r"\p{N}",
}
_CONTROL, _OWN = 3, 4  # kinds of tokens: of no text; of texts, and never cut


def gguf_tokenizer(facts: Mapping[str, Any], op: str) -> Tokenizer | None:
    """The tokenizer, or ``None`` with a warning where it is of a kind not read here.

    Byte pairs are read, cut as by GPT-2, Llama 3 and Qwen 2; vocabularies of
    SentencePiece are not: their merges are not in the file.

    Args:
        facts: What the file says.
        op: The operation named in errors.

    Raises:
        FileFormatError: The facts contradict each other.
    """
    own = {
        key.removeprefix(_FACTS): value
        for key, value in facts.items()
        if key.startswith(_FACTS)
    }
    kind, cut = own.get("model"), own.get("pre")
    if kind is None:
        return None
    if kind != "gpt2" or cut not in _CUTS:
        warnings.warn(
            f"{op}: the file's tokenizer ({kind!r}, cut by {cut!r}) is not read: the "
            "model has none. Set model.tokenizer = Tokenizer.load(folder).",
            stacklevel=2,
        )
        return None
    tokens: Any = own.get("tokens")
    merges: Any = own.get("merges")
    for name, value in (("tokens", tokens), ("merges", merges)):
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise FileFormatError(op, f"{_FACTS}{name} must be a list of texts")
    kinds = [int(number) for number in own.get("token_type", [])]
    if len(set(tokens)) != len(tokens) or len(kinds) not in (0, len(tokens)):
        raise FileFormatError(
            op, "the file's tokens are not all different, or not all have a kind"
        )
    content = _content(tokens, merges, kinds, own, op)
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for name in ("bos", "eos"):
        if (token := _token_of(name, tokens, own, op)) is not None:
            settings[f"{name}_token"] = token
    if "tokenizer.chat_template" in facts:
        settings["chat_template"] = facts["tokenizer.chat_template"]
    with tempfile.TemporaryDirectory() as folder:
        for name, value in ((TOKENIZER, content), (CONFIG_FILE, settings)):
            text = json.dumps(value, ensure_ascii=False)
            Path(folder, name).write_text(text, encoding="utf-8")
        return Tokenizer.load(folder, lazy=True)


def _content(
    tokens: list[str],
    merges: list[str],
    kinds: list[int],
    own: Mapping[str, Any],
    op: str,
) -> dict[str, Any]:
    """What ``tokenizer.json`` says."""
    cut, bos = own["pre"], _token_of("bos", tokens, own, op)
    pairs = [pair.split(" ") for pair in merges]
    if any(len(pair) != 2 for pair in pairs):
        raise FileFormatError(op, f"{_FACTS}merges must be pairs of tokens")
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    level["use_regex"] = _CUTS[cut] is None
    first: dict[str, Any] = level
    if _CUTS[cut] is not None:
        pattern = {"type": "Split", "pattern": {"Regex": _CUTS[cut]}}
        isolated = {"behavior": "Isolated", "invert": False}
        first = {"type": "Sequence", "pretokenizers": [pattern | isolated, level]}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {"id": number, "content": token, **flags, "special": kind == _CONTROL}
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=False))
        if kind in (_CONTROL, _OWN)
    ]
    begins = own.get("add_bos_token", cut == "llama-bpe")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"} if cut == "qwen2" else None,
        "pre_tokenizer": first,
        "post_processor": _beginning(bos, tokens) if begins and bos else None,
        "decoder": {**level, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": pairs,
            "ignore_merges": cut == "llama-bpe",
        },
    }


def _beginning(bos: str, tokens: list[str]) -> dict[str, Any]:
    """What puts a token before each text."""
    special, text = {"SpecialToken": {"id": bos, "type_id": 0}}, {"id": "A"}
    return {
        "type": "TemplateProcessing",
        "single": [special, {"Sequence": {**text, "type_id": 0}}],
        "pair": [
            special,
            {"Sequence": {**text, "type_id": 0}},
            {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {
            bos: {"id": bos, "ids": [tokens.index(bos)], "tokens": [bos]}
        },
    }


def _token_of(
    name: str, tokens: list[str], own: Mapping[str, Any], op: str
) -> str | None:
    """The token that a fact names by its number.

    Raises:
        FileFormatError: There is no such token.
    """
    number = own.get(f"{name}_token_id")
    if number is None:
        return None
    if type(number) is not int or not 0 <= number < len(tokens):
        raise FileFormatError(
            op, f"{_FACTS}{name}_token_id is {number!r}, of {len(tokens)} tokens"
        )
    return tokens[number]
