"""The bytes that each token of a tokenizer adds to a text."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from exburn.errors import FileFormatError

if TYPE_CHECKING:
    from exburn.text.tokenizer import Tokenizer

_OP = "TextConstraint"
_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")
_DECODERS = {
    "ByteFallback",
    "ByteLevel",
    "Fuse",
    "Metaspace",
    "Replace",
    "Sequence",
    "Strip",
    "WordPiece",
}


@dataclasses.dataclass(frozen=True)
class TokenBytes:
    """The bytes of tokens inside a text, between other tokens.

    Attributes:
        tokens: Those of each number; none of special tokens, and of numbers without
            one.
        before: The space that every text begins with, put together of these bytes;
            tokenizers of whole words have one.
    """

    tokens: list[bytes]
    before: str


def token_bytes(tokenizer: Tokenizer) -> TokenBytes:
    """The bytes of a tokenizer's tokens.

    Raises:
        FileFormatError: Its decoder makes another text of a token by what is beside it.

    Example:
        >>> from exburn.text import Tokenizer
        >>> tokenizer = Tokenizer.train(["so it is"] * 9, 260)
        >>> token_bytes(tokenizer).tokens[tokenizer.number_of("Ġ")]
        b' '
    """
    engine = tokenizer._tokens()
    vocabulary = engine.get_vocab(with_added_tokens=True)
    decoder = json.loads(tokenizer.to_json()).get("decoder")
    kinds = [step["type"] for step in _steps(decoder)]
    if unknown := sorted(set(kinds) - _DECODERS):
        raise FileFormatError(
            _OP,
            "texts are held to a form by the bytes of single tokens, which this "
            "tokenizer's decoder does not tell",
            {"decoder": ", ".join(unknown)},
        )
    if "ByteLevel" in kinds:
        bytes_of: Any = _ByteLevel()
    elif decoder is None:
        bytes_of = lambda token: b" " + token.encode()  # noqa: E731
    else:
        bytes_of = _InText(engine.decoder, "ByteFallback" in kinds)
    tokens = [b""] * (max(vocabulary.values(), default=-1) + 1)
    for token, number in vocabulary.items():
        if number not in tokenizer.special_numbers:
            tokens[number] = bytes_of(token)
    return TokenBytes(tokens, " " if decoder is None or "WordPiece" in kinds else "")


def _steps(decoder: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """The decoders that a decoder is made of."""
    if decoder is None:
        return
    yield decoder
    for step in decoder.get("decoders", ()):
        yield from _steps(step)


class _ByteLevel:
    """Tokens whose letters stand for one byte each, as GPT-2's."""

    def __init__(self):
        plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [byte for byte in range(256) if byte not in plain]
        self._bytes = {chr(byte): byte for byte in plain}
        self._bytes |= {chr(256 + n): byte for n, byte in enumerate(others)}

    def __call__(self, token: str) -> bytes:
        try:
            return bytes(self._bytes[letter] for letter in token)
        except KeyError:  # an added token in letters of its own
            return token.encode()


class _InText:
    """Tokens that a decoder makes text of: its text between two letters."""

    def __init__(self, decoder: Any, falls_back: bool):
        self._decode, self._falls_back = decoder.decode, falls_back
        self._tail = self._decode(["a", "##a"])[1:]

    def __call__(self, token: str) -> bytes:
        byte = _BYTE.fullmatch(token)
        if byte and self._falls_back:
            return bytes([int(byte[1], 16)])
        text = self._decode(["a", token, "##a"])
        if len(text) <= len(self._tail) or not text.endswith(self._tail):
            raise FileFormatError(
                _OP,
                "the tokenizer's decoder makes another text of a token by what is "
                "beside it",
                {"token": token},
            )
        return text[1 : len(text) - len(self._tail)].encode()
