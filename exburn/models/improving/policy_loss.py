"""The loss of GRPO: answers by how far their reward is above that of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.losses.contract.likelihood import (
    LikelihoodLoss,
    LikelihoodResult,
    TokenLikelihoods,
)

FORMS = ("dapo", "grpo", "bnpo", "dr_grpo")
_OF_TOKENS = ("kl", "clip_fraction", "entropy")
_OF_ANSWERS = ("reward", "reward_std", "unlike", "length", "truncated")


class PolicyLoss(LikelihoodLoss):
    """``-Σ f · min(r A, clip(r, 1 - ε, 1 + ε') A) + β r KL`` over the answers' tokens.

    ``r`` is the probability of a token over that of the model that drew it, ``A`` the
    advantage of its answer, and ``f`` what a sum is divided by: see `factors_of`.

    Args:
        beta: Factor of the divergence from the reference.
        epsilon, epsilon_high: How far ``r`` counts below and above 1.
        old: Whether the model that drew the tokens is another one; else ``r`` is 1.
        temperature: Of the probabilities.
        rewards: Names of the reward functions.
    """

    def __init__(
        self,
        beta: float,
        epsilon: float,
        epsilon_high: float,
        old: bool,
        temperature: float,
        rewards: Sequence[str],
        name: str | None = None,
    ):
        super().__init__(name)
        self.beta, self.epsilon, self.epsilon_high = beta, epsilon, epsilon_high
        self.old, self.temperature, self.rewards = old, temperature, tuple(rewards)

    reads_entropy = True
    reads_reference = False  # the batch has it
    options = ("beta", "epsilon", "epsilon_high", "old", "temperature", "rewards")

    @classmethod
    def of(cls, options: Any, rewards: Sequence[str]) -> PolicyLoss:
        """The loss of some ``ImproveOptions``."""
        high = options.epsilon_high
        return cls(
            beta=options.beta,
            epsilon=options.epsilon,
            epsilon_high=options.epsilon if high is None else high,
            old=options.steps > 1,
            temperature=options.temperature,
            rewards=rewards,
        )

    @property
    def likelihoods(self) -> tuple[str, ...]:
        """Log-probabilities that a batch has beside its tokens."""
        return ("old",) * self.old + ("reference",) * bool(self.beta)

    @property
    def of_answers(self) -> tuple[str, ...]:
        """What is told of each answer, at its first token."""
        several = self.rewards if len(self.rewards) > 1 else ()
        return (*_OF_ANSWERS, *(f"reward/{name}" for name in several))

    @property
    def columns(self) -> tuple[str, ...]:
        """What a batch has beside, but for ``likelihoods``."""
        return ("advantages", "factors", "first", *self.of_answers)

    @property
    def figures(self) -> tuple[str, ...]:  # type: ignore[override]
        left_out = () if self.beta else ("kl",)
        return tuple(n for n in (*self.of_answers, *_OF_TOKENS) if n not in left_out)

    def of_tokens(self, rows: TokenLikelihoods) -> LikelihoodResult:
        columns, counted, likely = rows.columns, rows.counted, rows.likely
        worth = columns["advantages"]
        before = columns["old"] if self.old else jax.lax.stop_gradient(likely)
        ratio = jnp.exp(likely - before)
        low, high = 1 - self.epsilon, 1 + self.epsilon_high
        values = -jnp.minimum(ratio * worth, jnp.clip(ratio, low, high) * worth)
        clipped = (ratio < low) & (worth < 0) | (ratio > high) & (worth > 0)
        told = {"clip_fraction": clipped, "entropy": rows.entropy}
        if self.beta:
            assert rows.reference is not None
            gap = rows.reference - likely
            told["kl"] = (jnp.exp(gap) - gap - 1) * ratio
            values = values + self.beta * told["kl"]
        loss = jnp.sum(jnp.where(counted > 0, values * columns["factors"], 0))
        told = jax.lax.stop_gradient(told)
        tokens, answers = counted.sum(), columns["first"].sum()
        figures = {
            name: (_mean(told[name], counted, tokens), tokens)
            for name in self.figures
            if name in told
        } | {
            name: (_mean(columns[name], columns["first"], answers), answers)
            for name in self.of_answers
        }
        return LikelihoodResult(loss, answers, figures)


def _mean(values: jax.Array, counts: jax.Array, total: jax.Array) -> jax.Array:
    return jnp.where(counts > 0, values, 0).sum() / jnp.maximum(total, 1)


def factors_of(options: Any, counted: np.ndarray, tokens: float) -> np.ndarray:
    """What each token's value is multiplied by in the loss of a step, ``[rows, time]``.

    ``"grpo"`` is the mean over answers of means over their tokens, ``"bnpo"`` the mean
    over the tokens of a step, ``"dapo"`` that over those of the round, and
    ``"dr_grpo"`` divides by the tokens that answers may have.

    Args:
        options: Some ``ImproveOptions``.
        counted: ``[rows, time]``: 1.0 for tokens that count.
        tokens: Tokens of a step of the round, on average.
    """
    if options.loss == "grpo":
        divisors = np.maximum(counted.sum(1, keepdims=True), 1) * options.rows
    elif options.loss == "dr_grpo":
        divisors = np.float32(options.rows * options.max_new_tokens)
    else:
        of_step = counted.sum() if options.loss == "bnpo" else tokens
        divisors = np.maximum(np.float32(of_step), 1)
    return (counted / divisors).astype(np.float32)
