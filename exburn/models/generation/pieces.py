"""Texts that come in pieces: no half character, and nothing of a stop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from exburn.text import Tokenizer

_HALF = "\ufffd"  # of a character whose bytes are not all there


class Pieces:
    """The text of a row, given out as it becomes certain.

    Args:
        tokenizer: What makes texts of tokens.
        prompt: Tokens in front, which some tokenizers need to see for the first space.
        stops: Texts that end it; they do not belong to it.

    Attributes:
        ended: Whether a stop was met.
    """

    def __init__(
        self, tokenizer: Tokenizer, prompt: np.ndarray, stops: Sequence[str] = ()
    ):
        self._tokenizer, self._stops = tokenizer, list(stops)
        self._prompt = prompt[-4:]
        self._before = len(tokenizer.decode(self._prompt))
        self._told, self.ended = 0, False

    def take(self, tokens: np.ndarray, last: bool) -> str:
        """What is new and certain in the text of all tokens so far.

        Args:
            tokens: All tokens of the row.
            last: Whether no more will come.
        """
        if self.ended:
            return ""
        whole = self._tokenizer.decode(np.concatenate([self._prompt, tokens]))
        text = whole[self._before :]
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.ended, text = True, text[: min(found)]
        elif not last:
            text = text[: len(text) - self._uncertain(text)]
        piece = text[self._told :]
        self._told = max(self._told, len(text))
        return piece

    def _uncertain(self, text: str) -> int:
        """Characters at the end that may become others, or a part of a stop."""
        held = len(text) - len(text.rstrip(_HALF))
        for stop in self._stops:
            for size in range(min(len(stop), len(text)), held, -1):
                if text.endswith(stop[:size]):
                    held = size
                    break
        return held
