"""What a model's folder says of writing: what ends a text, and how tokens are drawn."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp

from exburn.core.checks import check_count, check_flag, check_number
from exburn.errors import ArgumentError
from exburn.text.samplers import Greedy, Sampler, TopP
from exburn.text.settings import TextSettings

_OP = "generation"


@dataclasses.dataclass(frozen=True)
class GenerationDefaults(TextSettings):
    """What ``generate`` does where a call says nothing.

    Args:
        end_tokens: Numbers of tokens, each of which ends a text; ``None`` for the
            tokenizer's.
        do_sample: Whether tokens are drawn; else the likeliest is taken.
        temperature, repetition_penalty: As of ``exburn.text.Sampler``.
        top_k: Only the likeliest tokens are drawn; 0 for all.
        top_p, min_p: As of ``TopP`` and ``MinP``, of those that are left.
        max_new_tokens: Tokens to write at most; ``None`` for the rest of
            ``max_length``.
        max_length: Tokens of the prompt and of what is written; ``None`` for any.

    Raises:
        ArgumentError: A value is out of range.

    Example:
        >>> GenerationDefaults(end_tokens=[2, 3]).end_tokens
        (2, 3)
    """

    end_tokens: tuple[int, ...] | None = None
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    max_new_tokens: int | None = None
    max_length: int | None = None

    def __post_init__(self):
        if self.end_tokens is not None:
            if not isinstance(self.end_tokens, Iterable):
                raise ArgumentError(
                    _OP, f"end_tokens are numbers, received {self.end_tokens!r}"
                )
            ends = [check_count(_OP, "end_tokens", n, 0) for n in self.end_tokens]
            object.__setattr__(self, "end_tokens", tuple(ends))
        check_flag(_OP, "do_sample", self.do_sample)
        check_count(_OP, "top_k", self.top_k, 0)
        check_number(_OP, "temperature", self.temperature, open_low=True)
        check_number(_OP, "repetition_penalty", self.repetition_penalty, open_low=True)
        check_number(_OP, "top_p", self.top_p, high=1, open_low=True)
        check_number(_OP, "min_p", self.min_p, high=1)
        for name in ("max_new_tokens", "max_length"):
            if getattr(self, name) is not None:
                check_count(_OP, name, getattr(self, name))

    def new_tokens(self, prompt: int) -> int | None:
        """How many tokens are written at most behind a prompt; ``None`` if not told.

        Args:
            prompt: Tokens of the prompt.

        Raises:
            ArgumentError: The prompt has as many as there may be, or more.

        Example:
            >>> GenerationDefaults(max_length=8).new_tokens(5)
            3
        """
        if self.max_new_tokens is not None or self.max_length is None:
            return self.max_new_tokens
        if prompt >= self.max_length:
            raise ArgumentError(
                _OP,
                f"the model's folder allows {self.max_length} tokens (max_length), the "
                f"prompt has {prompt}",
                hint="Say how many are to be written: max_new_tokens=…",
            )
        return self.max_length - prompt

    @property
    def sampler(self) -> Sampler:
        """The sampler that chooses so."""
        penalty = self.repetition_penalty
        penalty = None if penalty == 1 else penalty
        if not self.do_sample:
            return Greedy(repetition_penalty=penalty)
        return _Filtered(
            self.top_p,
            self.top_k or None,
            self.min_p,
            temperature=self.temperature,
            repetition_penalty=penalty,
        )


@dataclasses.dataclass(frozen=True)
class _Filtered(TopP):
    """``TopP`` of the ``k`` likeliest tokens, and ``MinP`` of what that leaves."""

    min_p: Any = 0.0

    def keep(self, logits):
        least = logits.max(axis=-1, keepdims=True) + jnp.log(self.min_p)
        return jnp.where(logits < least, -jnp.inf, super().keep(logits))
