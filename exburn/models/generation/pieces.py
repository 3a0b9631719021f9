"""Texts that come in pieces: no half character, and nothing of a stop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from exburn.text import Tokenizer
from exburn.text.constraints import TextConstraint
from exburn.text.settings import clean_part, clean_text

_HALF = "\ufffd"  # of a character whose bytes are not all there
_CONTEXTS = (4, 16, 64)  # tokens in front that are seen, the fewest that have a text


class Pieces:
    """The text of a row, given out as it becomes certain.

    Tokens are looked at one by one, however many come at once. So the text is a
    matter of the tokens alone, and not of how they are divided into pieces. The stop
    that is the first to be complete ends the text, and of those that are complete at
    the same character the longest.

    Args:
        prompt: Tokens in front, which some tokenizers need to see for the first space.
        stops: Texts that end it; they do not belong to it.
        constraint: The form that the text has, which says what each token writes.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: np.ndarray,
        stops: Sequence[str] = (),
        constraint: TextConstraint | None = None,
    ):
        self._tokenizer, self._stops = tokenizer, list(stops)
        self._count, self._held, self.ended = 0, "", False
        self._reader = None if constraint is None else constraint.reader()
        cleans = tokenizer.settings.clean_up_spaces and constraint is None
        self._cleans, self._unclean = cleans, ""
        self._begin_window(prompt.tolist())

    def take(self, tokens: np.ndarray, last: bool) -> str:
        """What is new and certain in the text of all tokens so far.

        Args:
            tokens: All tokens of the row: those of the call before, and more.
        """
        parts = []
        for token in tokens[self._count :].tolist():
            if self.ended:
                break
            parts.append(self.add(token))
        self._count = len(tokens)
        if last:
            parts.append(self.end())
        return "".join(parts)

    def add(self, token: int) -> str:
        """What another token makes certain, unless a stop has ended the text."""
        return self._pass_on(self._clean(self._add(token)))

    def end(self) -> str:
        """What is left of the text when no token follows."""
        if self.ended:
            return ""
        rest = self._pass_on(self._clean(self._rest(), last=True))
        if not self.ended:
            rest += self._held
        self._held = ""
        return rest

    @property
    def overhang(self) -> int:
        """Characters that are certain, but for a stop that they may begin."""
        return len(self._held) + len(self._unclean)

    # ------------------------------------------------------------------ of tokens
    def _begin_window(self, tokens: list[int]) -> None:
        """Keeps those of the tokens that the text behind them may depend on."""
        for size in _CONTEXTS:
            while size < len(tokens) and self._is_byte(tokens[-size]):
                size += 1  # bytes are one text, or none of them is
            self._window = tokens[-size:]
            self._before = len(self._decode())
            if self._before or size >= len(tokens):
                break
        self._told = 0

    def _add(self, token: int) -> str:
        """What another token makes certain."""
        if self._reader is not None:
            return self._reader.add(token)
        self._window.append(token)
        if self._is_byte(token):
            return ""  # the bytes behind it decide what it is
        text = self._text()
        certain = text.rstrip(_HALF)
        piece = certain[self._told :]
        self._told = max(self._told, len(certain))
        if len(certain) == len(text):
            self._begin_window(self._window)
        return piece

    def _rest(self) -> str:
        """What is certain of the text once nothing more comes."""
        if self._reader is not None:
            return self._reader.rest()
        text = self._text()
        rest, self._told = text[self._told :], len(text)
        return rest

    def _text(self) -> str:
        """The text of the window behind its context."""
        return self._decode()[self._before :]

    def _decode(self) -> str:
        return self._tokenizer.decode_row(self._window)

    def _clean(self, text: str, last: bool = False) -> str:
        """The part of a text that is certain once spaces before punctuation go.

        Args:
            text: The text behind all that was given before.
        """
        if not self._cleans:
            return text
        text = self._unclean + text
        clean, self._unclean = (clean_text(text), "") if last else clean_part(text)
        return clean

    def _is_byte(self, token: int) -> bool:
        return token in self._tokenizer.byte_numbers

    # ------------------------------------------------------------------ of stops
    def _pass_on(self, text: str) -> str:
        """What of the text held back and of more of it is no part of a stop."""
        text, self._held = self._held + text, ""
        met = [
            (at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0
        ]
        if met:
            self.ended = True
            return text[: min(met)[1]]
        self._held = text[len(text) - self._beginning(text) :]
        return text[: len(text) - len(self._held)]

    def _beginning(self, text: str) -> int:
        """Characters at the end that may be the beginning of a stop."""
        longest = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(text)), longest, -1):
                if text.endswith(stop[:size]):
                    longest = size
                    break
        return longest
