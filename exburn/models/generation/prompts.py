"""Prompts as rows of token numbers, and the sizes that programs are made for."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from exburn.errors import ArgumentError, DataError, DTypeError
from exburn.text import Tokenizer

_OP = "generate"
_LEAST = 16  # tokens that prompts are filled up to, and then the powers of two
_TOKENS = 64  # whose multiples the tokens that may be written are rounded up to


@dataclasses.dataclass(frozen=True)
class Prompts:
    """Prompts, and the form in which answers are wanted.

    Attributes:
        single: Whether one prompt was given, not a sequence of them.
        texts: The prompts as texts, or ``None``.
    """

    rows: list[np.ndarray]
    single: bool
    texts: list[str] | None

    @property
    def longest(self) -> int:
        """Tokens of the longest one."""
        return max(len(row) for row in self.rows)

    def fill(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """``[batch, size]`` of token numbers, and how many of them are a prompt's."""
        ids = np.zeros((len(self.rows), size), np.int32)
        for row, tokens in zip(ids, self.rows, strict=True):
            row[: len(tokens)] = tokens
        return ids, np.array([len(row) for row in self.rows], np.int32)

    def in_form(self, answers: list[Any]) -> Any:
        """Answers to the prompts in the form in which these were given."""
        return answers[0] if self.single else answers


def read_prompts(prompt: Any, tokenizer: Tokenizer | None) -> Prompts:
    """The prompts that a user gave.

    Args:
        prompt: A text, token numbers, or a sequence of either; or prompts that are read
            already.
    """
    if isinstance(prompt, Prompts):
        return prompt
    if isinstance(prompt, str):
        texts, single = [prompt], True
    elif isinstance(prompt, list | tuple) and prompt and isinstance(prompt[0], str):
        if not all(isinstance(text, str) for text in prompt):
            raise ArgumentError(_OP, "some of the prompts are texts, others are not")
        texts, single = list(prompt), False
    else:
        return _read_tokens(prompt)
    if tokenizer is None:
        raise ArgumentError(
            _OP,
            "a prompt that is a text needs the model's tokenizer",
            hint="model.tokenizer = exburn.text.Tokenizer.load(path), or give token "
            "numbers.",
        )
    rows = tokenizer.encode(texts)
    _check_some(rows)
    return Prompts(rows, single, texts)


def _read_tokens(prompt: Any) -> Prompts:
    if isinstance(prompt, np.ndarray | jax.Array):
        array = np.asarray(prompt)
        if array.ndim not in (1, 2):
            raise ArgumentError(
                _OP,
                "token numbers are [time] or [batch, time], received an array of shape "
                f"{array.shape}",
            )
        rows, single = ([array], True) if array.ndim == 1 else (list(array), False)
    elif isinstance(prompt, list | tuple):
        single = not any(np.ndim(row) for row in prompt) and len(prompt) > 0
        rows = [np.asarray(prompt)] if single else [np.asarray(row) for row in prompt]
    else:
        raise ArgumentError(
            _OP,
            "a prompt is a text, an array of token numbers, or a sequence of either, "
            f"received {type(prompt).__name__}",
        )
    _check_some(rows)
    for row in rows:
        if row.ndim != 1:
            raise ArgumentError(
                _OP, f"each prompt has one axis, received an array of shape {row.shape}"
            )
        if row.dtype.kind not in "iu":
            raise DTypeError(
                _OP, f"token numbers must be integers, received {row.dtype}"
            )
    return Prompts(rows, single, None)


def _check_some(rows: list[np.ndarray]) -> None:
    if not rows:
        raise DataError(_OP, "there is no prompt")
    for number, row in enumerate(rows):
        if row.size == 0:
            raise DataError(
                _OP,
                f"prompt {number} is empty",
                hint="Begin with the token that ends or begins a text.",
            )


def prompt_size(longest: int) -> int:
    """The size that prompts are filled up to.

    Example:
        >>> prompt_size(3), prompt_size(16), prompt_size(100)
        (16, 16, 128)
    """
    return max(_LEAST, 1 << (longest - 1).bit_length())


def room_for(tokens: int, stride: int) -> int:
    """Tokens that a program may write, so that others of about as many share it.

    Example:
        >>> room_for(20, 1), room_for(64, 1), room_for(64, 8)
        (64, 64, 128)
    """
    needed = tokens + stride - 1
    return -(-needed // _TOKENS) * _TOKENS
