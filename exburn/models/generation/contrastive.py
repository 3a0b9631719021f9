"""Contrastive search: likely tokens that make the text go on, not repeat itself.

Of the ``k`` likeliest tokens the one comes that has the greatest ``(1 - alpha) * p -
alpha * s``: ``p`` is its probability, and ``s`` the greatest cosine between the vector
that the model makes of it and those of all tokens before. Every step runs the model on
all candidates at once, as rows of their own.

Source: Su et al., *A Contrastive Framework for Neural Text Generation*, 2022.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from exburn.models.generation.invariants import hoist
from exburn.models.generation.loop import (
    State,
    append,
    report_of,
    run_until,
    seen_by,
)
from exburn.models.generation.memory import HeadWatch, Memory


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Search(State):
    """The state of the loop, and what the next candidates are compared with.

    Attributes:
        scores: ``[batch, vocabulary]``: of the next token.
        vectors: ``[batch, prompt + most, width]``: directions of the tokens' vectors,
            those that were written from ``prompt`` on.
    """

    scores: jax.Array
    vectors: jax.Array


def make_begin(memory: Memory, head: int) -> Callable:
    """The program that reads the prompts."""

    def begin(groups, ids, lengths, sampler, stops, key, most: int):
        prompt, watch = ids.shape[1], HeadWatch(head)
        cache, scores, doubt = memory.begin(groups, ids, lengths, prompt + most, watch)
        vectors = _directions(watch.vectors[:, :prompt])
        free = prompt + most - vectors.shape[1]
        seen = seen_by(sampler, ids, lengths, scores.shape[-1])
        state = Search(
            **vars(State.fresh(cache, lengths, most, stops, seen)),
            scores=scores,
            vectors=jnp.pad(vectors, ((0, 0), (0, free), (0, 0))),
        )

        repeated = _lengths(state, sampler)

        def advance(*arguments):
            return _run(memory, head, groups, arguments, repeated, prompt)

        state = _write(state, advance, sampler, stops, prompt)
        return state, report_of(state, doubt)

    return begin


def make_go_on(memory: Memory, stride: int, head: int) -> Callable:
    """The program that writes more tokens."""

    def go_on(groups, state, sampler, stops, key, until, prompt: int):
        repeated = _lengths(state, sampler)

        def advance(groups, *arguments):
            return _run(memory, head, groups, arguments, repeated, prompt)

        tokens = jnp.zeros_like(repeated)
        arguments = (
            _candidates(state.memory, _count(state, sampler)),
            tokens,
            state.step,
        )
        advance_rest = hoist(advance, groups, *arguments)

        def one(state):
            return _write(state, advance_rest, sampler, stops, prompt)

        state = run_until(state, one, until, stride)
        return state, report_of(state, jnp.zeros(()))

    return go_on


def _run(memory, head, groups, arguments, lengths, prompt) -> tuple:
    """The memory of all candidates, the scores after them, and their vectors."""
    cache, tokens, step = arguments
    watch = HeadWatch(head)
    cache, scores = memory.advance(groups, cache, tokens, step, lengths, prompt, watch)
    return cache, scores, _directions(watch.vectors[:, 0])


def _write(state: Search, advance: Callable, sampler: Any, stops: Any, prompt: int):
    """The state with one more token of each row."""
    rows, count = len(state.lengths), _count(state, sampler)
    scores = sampler.penalize(state.scores.astype(jnp.float32), state.seen)
    chances = jax.nn.softmax(scores / sampler.temperature, axis=-1)
    chances, tokens = lax.top_k(chances, count)  # [rows, count]
    cache, scores, vectors = advance(
        _candidates(state.memory, count), tokens.reshape(-1), state.step
    )
    vectors = vectors.reshape(rows, count, -1)
    likeness = jnp.einsum(
        "rcw,rsw->rcs", vectors, state.vectors, precision=lax.Precision.HIGHEST
    )
    slot = jnp.arange(state.vectors.shape[1])[None]
    written = (slot >= prompt) & (slot < prompt + state.step)
    filled = (slot < jnp.minimum(state.lengths, prompt)[:, None]) | written
    repeats = jnp.where(filled[:, None], likeness, -jnp.inf).max(axis=-1)
    values = (1 - sampler.alpha) * chances - sampler.alpha * repeats
    best = values.argmax(axis=-1)[:, None]  # [rows, 1]
    place = best[:, 0] + jnp.arange(rows) * count
    cache, scores = jax.tree.map(lambda value: value[place], (cache, scores))
    chosen = jnp.take_along_axis(vectors, best[..., None], axis=1)
    token = jnp.take_along_axis(tokens, best, axis=1)[:, 0]
    return dataclasses.replace(
        append(state, token, stops),
        memory=cache,
        scores=scores,
        vectors=lax.dynamic_update_slice(
            state.vectors, chosen, (0, prompt + state.step, 0)
        ),
    )


def _count(state: Search, sampler: Any) -> int:
    """Candidates of each row."""
    return min(sampler.k, state.scores.shape[-1])


def _lengths(state: Search, sampler: Any) -> jax.Array:
    return jnp.repeat(state.lengths, _count(state, sampler))


def _candidates(memory: Any, count: int) -> Any:
    """The memory of each row, once for each of its candidates."""
    return jax.tree.map(lambda value: jnp.repeat(value, count, axis=0), memory)


def _directions(vectors: jax.Array) -> jax.Array:
    """Vectors of the length 1, in float32."""
    vectors = vectors.astype(jnp.float32)
    return vectors / (jnp.linalg.norm(vectors, axis=-1, keepdims=True) + 1e-12)
