"""The compiled loop that writes tokens, one at a time for all rows.

Two pure functions make two programs: ``begin`` reads the prompts and chooses the first
tokens, ``go_on`` writes more until as many are there as asked for, or all rows have
stopped. The second one consumes the state that it is given, so that a cache is
there once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError
from exburn.models.generation.invariants import hoist
from exburn.models.generation.memory import Memory

NO_TOKEN, ANY_TOKEN = -2, -1  # in stops: what never comes, and what may be any


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """What one call of the loop leaves for the next.

    Attributes:
        memory: What the model remembers: ``memory.py``.
        lengths: ``[batch]``: tokens of the prompts.
        tokens: ``[batch, most]``: what was written.
        tail: ``[batch, longest stop]``: the last tokens of that.
        count: ``[batch]``: tokens written until the row stopped.
        stopped: ``[batch]``: number of the stop that the row met, from 1 on; 0 where it
            goes on, and ``-1`` where the host has ended it.
        seen: ``[batch, vocabulary]``: tokens that a row has had; ``None`` if nobody
            asks.
    """

    memory: Any
    lengths: jax.Array
    tokens: jax.Array
    tail: jax.Array
    count: jax.Array
    stopped: jax.Array
    step: jax.Array
    seen: jax.Array | None

    @classmethod
    def fresh(
        cls,
        memory: Any,
        lengths: jax.Array,
        most: int,
        stops: jax.Array,
        seen: jax.Array | None = None,
    ) -> State:
        """The state before the first token, with room for ``most`` of them."""
        rows = lengths.shape[0]
        return cls(
            memory=memory,
            lengths=lengths,
            tokens=jnp.zeros((rows, most), jnp.int32),
            tail=jnp.full((rows, stops.shape[1]), NO_TOKEN, jnp.int32),
            count=jnp.zeros(rows, jnp.int32),
            stopped=jnp.zeros(rows, jnp.int32),
            step=jnp.zeros((), jnp.int32),
            seen=seen,
        )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GenerationReport:
    """What the host reads of a state: arrays of their own, which stay.

    Attributes:
        doubt: By how much scores differ that a causal model computes alike.
    """

    tokens: jax.Array
    count: jax.Array
    stopped: jax.Array
    step: jax.Array
    doubt: jax.Array


def make_begin(memory: Memory) -> Callable:
    """The program that reads the prompts."""

    def begin(groups, ids, lengths, sampler, stops, key, most: int):
        batch, prompt = ids.shape
        cache, scores, doubt = memory.begin(groups, ids, lengths, prompt + most)
        seen = seen_by(sampler, ids, lengths, scores.shape[-1])
        state = State.fresh(cache, lengths, most, stops, seen)
        state = _write(state, scores, sampler, stops, key)
        return state, report_of(state, doubt)

    return begin


def make_go_on(memory: Memory, stride: int) -> Callable:
    """The program that writes more tokens.

    Args:
        stride: Tokens between two looks at whether to go on. On a GPU each look waits
            for the device; it may write some more tokens than asked for.
    """

    def go_on(groups, state, sampler, stops, key, until, prompt: int):
        lengths = state.lengths

        def advance(groups, cache, token, step):
            return memory.advance(groups, cache, token, step, lengths, prompt)

        arguments = state.memory, last_token(state), state.step
        advance_rest = hoist(advance, groups, *arguments)

        def one(state):
            arguments = state.memory, last_token(state), state.step - 1
            cache, scores = advance_rest(*arguments)
            state = dataclasses.replace(state, memory=cache)
            return _write(state, scores, sampler, stops, key)

        state = run_until(state, one, until, stride)
        return state, report_of(state, jnp.zeros(()))

    return go_on


def run_until(state: Any, one: Callable, until: Any, stride: int) -> Any:
    """The state after so many tokens, or once all rows have stopped."""

    def body(state):
        if stride == 1:
            return one(state)
        return lax.scan(lambda s, _: (one(s), None), state, None, length=stride)[0]

    def goes_on(state):
        return (state.step < until) & jnp.any(state.stopped == 0)

    return lax.while_loop(goes_on, body, state)


def row_keys(key: jax.Array, rows: int, step: Any) -> jax.Array:
    """A key for each row and token: a row draws alike whatever is beside it.

    Args:
        step: Number of the token in its answer: one for all rows, or of each.
    """
    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(rows))
    return jax.vmap(jax.random.fold_in)(keys, jnp.broadcast_to(step, (rows,)))


def find_stop(tail: jax.Array, stops: jax.Array) -> jax.Array:
    """``[batch]``: number of the first stop that the last tokens are, from 1 on; or 0.

    Args:
        tail: ``[batch, longest]``: the last tokens of each row.
        stops: ``[number, longest]``: those of each stop, with ``ANY_TOKEN`` before a
            short one.
    """
    same = (tail[:, None] == stops[None]) | (stops[None] == ANY_TOKEN)
    met = same.all(axis=-1)  # [batch, number]
    return jnp.where(met.any(axis=-1), met.argmax(axis=-1) + 1, 0).astype(jnp.int32)


def _write(state: State, scores: Any, sampler: Any, stops: Any, key: Any) -> State:
    """The state with one more token of each row."""
    token = choose(sampler, scores, state.seen, key, state.step)
    return append(state, token, stops)


def choose(sampler: Any, scores: Any, seen: Any, key: Any, step: Any) -> jax.Array:
    """The next token of each row, ``[batch]``.

    Args:
        scores: ``[batch, vocabulary]``.
        seen: As of the state.
        step: As of ``row_keys``.
    """
    rows, scores = scores.shape[0], scores.astype(jnp.float32)
    if hasattr(sampler, "penalize"):
        scores = sampler.penalize(scores, seen)
    token = jnp.asarray(sampler(scores, row_keys(key, rows, step)))
    if token.shape != (rows,) or not jnp.issubdtype(token.dtype, jnp.integer):
        raise ArgumentError(
            "generate",
            f"a sampler must return a token number for each row, int32[{rows}], "
            f"received {describe(token)}",
            hint="Such as logits.argmax(-1).",
        )
    return token.astype(jnp.int32)


def append(state: Any, token: jax.Array, stops: jax.Array) -> Any:
    """The state with these tokens, one of each row."""
    going, seen = state.stopped == 0, state.seen
    if seen is not None:
        seen = seen.at[jnp.arange(len(token)), token].set(True)
    tail = jnp.concatenate([state.tail[:, 1:], token[:, None]], axis=1)
    return dataclasses.replace(
        state,
        tokens=lax.dynamic_update_slice(state.tokens, token[:, None], (0, state.step)),
        tail=tail,
        count=state.count + going,
        stopped=jnp.where(going, find_stop(tail, stops), state.stopped),
        step=state.step + 1,
        seen=seen,
    )


def last_token(state: State) -> jax.Array:
    return lax.dynamic_slice_in_dim(state.tokens, state.step - 1, 1, axis=1)[:, 0]


def seen_by(sampler: Any, ids: jax.Array, lengths: jax.Array, vocabulary: int) -> Any:
    """``[batch, vocabulary]``: which tokens the prompts hold, if the sampler asks."""
    if getattr(sampler, "repetition_penalty", None) is None:
        return None
    rows, time = ids.shape
    inside = jnp.arange(time)[None] < lengths[:, None]
    places = jnp.where(inside, ids, vocabulary)  # out of range: dropped
    seen = jnp.zeros((rows, vocabulary), bool)
    return seen.at[jnp.arange(rows)[:, None], places].set(True, mode="drop")


def report_of(state: State, doubt: jax.Array) -> GenerationReport:
    return GenerationReport(state.tokens, state.count, state.stopped, state.step, doubt)
