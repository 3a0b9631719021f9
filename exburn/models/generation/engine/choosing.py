"""The next token of each row, by numbers of its own."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

_AHEAD = 256  # likeliest tokens among which those that may be drawn mostly are


@dataclasses.dataclass(frozen=True)
class Choices:
    """What any row of a call asks for: other choices are another program.

    Attributes:
        draws: Tokens are drawn; else the likeliest are taken.
        filters: Of some rows, from the likeliest ones alone.
        penalty: Some rows lower the scores of tokens that they have had.
        masks: Constraints say which tokens may come.
        tops: How many of the likeliest are told, or ``None`` if no logarithms are.
    """

    draws: bool = False
    filters: bool = False
    penalty: bool = False
    masks: bool = False
    tops: int | None = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Numbers:
    """The numbers of the rows, ``[rows]`` each, as of ``TextRequest``.

    Attributes:
        index: Number of the token behind the prompt.
    """

    temperature: jax.Array
    top_k: jax.Array
    top_p: jax.Array
    min_p: jax.Array
    penalty: jax.Array
    seed: jax.Array
    index: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Chosen:
    """What came out, ``[rows]`` each.

    Attributes:
        sound: Whether there was a token to choose: no scores are NaN.
        logprob, top: As of ``TextPart``; ``None`` if nobody asks. ``top`` has numbers
            and logarithms, ``[rows, tops]``.
    """

    token: jax.Array
    sound: jax.Array
    logprob: jax.Array | None
    top: tuple[jax.Array, jax.Array] | None


def choose(
    scores: jax.Array, numbers: Numbers, seen: Any, masks: Any, choices: Choices
) -> Chosen:
    """The next tokens.

    Args:
        scores: ``[rows, vocabulary]``.
        seen: Booleans of that shape: tokens that the rows have had, if penalized.
        masks: ``uint32[rows, words]``: a bit for each token that may come.
    """
    scores = scores.astype(jnp.float32)
    values = scores
    if choices.penalty:
        penalty = numbers.penalty[:, None]
        lower = jnp.where(scores > 0, scores / penalty, scores * penalty)
        values = jnp.where(seen, lower, scores)
    if choices.masks:
        values = jnp.where(_mask_bits(masks, scores.shape[-1]), values, -jnp.inf)
    token = jnp.argmax(values, axis=-1)
    best = jnp.max(values, axis=-1)
    # XLA's CPU drops NaN from some maxima: of 600 numbers, say.
    sound = jnp.isfinite(best) & ~jnp.isnan(scores).any(axis=-1)
    if choices.draws:
        hot = numbers.temperature > 0
        values = values / jnp.where(hot, numbers.temperature, 1)[:, None]
        if choices.filters:
            values = jnp.where(values < _least(values, numbers), -jnp.inf, values)
        drawn = jax.vmap(jax.random.categorical)(_keys(numbers), values)
        token = jnp.where(hot, drawn, token)
    token = token.astype(jnp.int32)
    if choices.tops is None:
        return Chosen(token, sound, None, None)
    logprobs = jax.nn.log_softmax(scores)
    logprob = jnp.take_along_axis(logprobs, token[:, None], axis=1)[:, 0]
    top = None
    if choices.tops:
        values, tokens = lax.top_k(logprobs, min(choices.tops, scores.shape[-1]))
        top = tokens, values
    return Chosen(token, sound, logprob, top)


def _mask_bits(masks: jax.Array, vocabulary: int) -> jax.Array:
    """Booleans ``[rows, vocabulary]`` of bits, the least significant one first."""
    bits = (masks[..., None] >> jnp.arange(32, dtype=jnp.uint32)) & 1
    return bits.reshape(masks.shape[0], -1)[:, :vocabulary].astype(bool)


def _keys(numbers: Numbers) -> jax.Array:
    """The keys that ``generate`` has for its first row, by seed and token."""

    def key(seed: Any, index: Any) -> jax.Array:
        return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 0), index)

    return jax.vmap(key)(numbers.seed, numbers.index)


def _least(values: jax.Array, numbers: Numbers) -> jax.Array:
    """The least score that may be drawn, ``[rows, 1]``.

    The likeliest few tokens mostly tell; only where they do not are all sorted.
    """
    size = values.shape[-1]
    k = jnp.where(numbers.top_k > 0, jnp.minimum(numbers.top_k, size), size)[:, None]
    p = numbers.top_p[:, None]
    everything = jax.nn.logsumexp(values, axis=-1, keepdims=True)
    free = (k >= size) & (p >= 1)

    def least(ordered: jax.Array) -> tuple[jax.Array, jax.Array]:
        """It, and whether these scores, in descending order, are enough to tell."""
        among = jnp.arange(ordered.shape[-1]) < k
        part = jax.nn.logsumexp(
            jnp.where(among, ordered, -jnp.inf), axis=-1, keepdims=True
        )
        total = jnp.where(k >= size, everything, part)
        shares = jnp.where(among, jnp.exp(ordered - total), 0)
        before = jnp.cumsum(shares, axis=-1) - shares
        needed = among & (before < p)
        found = jnp.where(needed, ordered, jnp.inf).min(axis=-1, keepdims=True)
        told = (before[:, -1:] + shares[:, -1:] >= p) & (k >= size)
        told |= (k <= ordered.shape[-1]) | free
        return jnp.where(free, -jnp.inf, found), told

    first = lax.top_k(values, min(_AHEAD, size))[0]
    bound, told = least(first)
    if size > _AHEAD:
        bound = lax.cond(
            jnp.all(told),
            lambda: bound,
            lambda: least(jnp.sort(values, axis=-1, descending=True))[0],
        )
    floor = first[:, :1] + jnp.log(numbers.min_p)[:, None]  # −∞ for 0
    return jnp.maximum(bound, floor)
