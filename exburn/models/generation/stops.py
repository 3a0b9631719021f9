"""What ends a row: tokens, which the loop looks for, and texts, which the host does."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from exburn.core.checks import check_count, check_unicode
from exburn.errors import ArgumentError
from exburn.models.generation.loop import ANY_TOKEN, NO_TOKEN
from exburn.text import Tokenizer

_OP = "generate"


@dataclasses.dataclass(frozen=True)
class Stops:
    """What ends a row."""

    tokens: list[list[int]]
    texts: list[str]

    def as_array(self) -> np.ndarray:
        """``[number, longest]``: the sequences, each at the end of its row.

        Both sizes are powers of two, so that other stops are seldom another program.
        """
        longest = _power_of_two(max((len(stop) for stop in self.tokens), default=1))
        array = np.full((_power_of_two(len(self.tokens)), longest), NO_TOKEN, np.int32)
        for row, stop in zip(array, self.tokens, strict=False):
            row[:] = ANY_TOKEN
            row[longest - len(stop) :] = stop
        # A row that was not filled asks for what never comes twice over.
        array[len(self.tokens) :] = NO_TOKEN - 1
        return array

    def without(self, tokens: np.ndarray, stopped: int) -> np.ndarray:
        """The tokens of a row without the stop that it met."""
        if stopped <= 0:
            return tokens
        return tokens[: max(len(tokens) - len(self.tokens[stopped - 1]), 0)]


def read_stops(
    stop: Any,
    tokenizer: Tokenizer | None,
    texts: bool,
    ends: tuple[int, ...] | None = None,
) -> Stops:
    """What a user gave as ``stop``, and the tokenizer's end of a text.

    Args:
        stop: ``None``, a text, a token number, or a sequence of those and of sequences
            of token numbers.
        ends: Tokens that end a text; ``None`` for the tokenizer's end, which is found
            by its usual names.
    """
    items = stop if isinstance(stop, list | tuple | np.ndarray) else [stop]
    tokens: list[list[int]] = []
    words: list[str] = []
    for item in [] if stop is None else items:
        if isinstance(item, str):
            if not item:
                raise ArgumentError(_OP, "a stop must not be an empty text")
            words.append(check_unicode(_OP, item))
        elif isinstance(item, list | tuple | np.ndarray) and np.size(item):
            tokens.append([check_count(_OP, "stop", token, 0) for token in item])
        else:
            tokens.append([check_count(_OP, "stop", item, 0)])
    if words and (tokenizer is None or not texts):
        raise ArgumentError(
            _OP,
            "a stop that is a text is for prompts that are texts",
            {"received": words[0]},
            hint="Give the token's number, or the prompt as a text.",
        )
    if tokenizer is not None:
        # A special token has no text that a stop could be looked for in.
        end = tokenizer.end if ends is None else tokenizer.state_dict()["end"]
        named = [*filter(tokenizer.is_special, words), end]
        numbers = [tokenizer.number_of(name) for name in named if name is not None]
        tokens += [[n] for n in numbers if n is not None and [n] not in tokens]
    tokens += [[n] for n in ends or () if [n] not in tokens]
    # Of stops that are complete at the same token the longest is taken away.
    return Stops(sorted(tokens, key=len, reverse=True), words)


def _power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()
