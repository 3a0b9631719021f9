"""Beam search: of all continuations of the best rows the best ones go on.

A beam that has met a stop stays among the others with its score, and competes with
them. With as many beams as there are continuations this is an exhaustive search.

Source: Graves, *Sequence Transduction with Recurrent Neural Networks*, 2012.
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
    GenerationReport,
    State,
    find_stop,
    last_token,
)
from exburn.models.generation.memory import Memory


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Beams:
    """The beams of all rows: ``state`` has ``batch * beams`` rows.

    Attributes:
        scores: ``[batch, beams]``: logarithms of their probabilities.
    """

    state: State
    scores: jax.Array


def make_search(memory: Memory) -> Callable:
    """The program that reads the prompts and searches."""

    def search(groups, ids, lengths, stops, until, penalty, most: int, beams: int):
        batch, prompt = ids.shape
        cache, scores, doubt = memory.begin(groups, ids, lengths, prompt + most)
        cache, lengths = jax.tree.map(
            lambda v: jnp.repeat(v, beams, 0), (cache, lengths)
        )
        state = State.fresh(cache, lengths, most, stops)
        # The beams of a row are alike so far: one of them counts.
        alone = jnp.where(jnp.arange(beams) == 0, 0.0, -jnp.inf)
        hypotheses = Beams(state, jnp.broadcast_to(alone, (batch, beams)))
        hypotheses = _extend(hypotheses, jnp.repeat(scores, beams, 0), stops)

        def advance(groups, cache, token, step):
            return memory.advance(groups, cache, token, step, lengths, prompt)

        first = hypotheses.state
        arguments = first.memory, last_token(first), first.step
        advance_rest = hoist(advance, groups, *arguments)

        def body(hypotheses):
            state = hypotheses.state
            arguments = state.memory, last_token(state), state.step - 1
            cache, scores = advance_rest(*arguments)
            state = dataclasses.replace(state, memory=cache)
            return _extend(dataclasses.replace(hypotheses, state=state), scores, stops)

        def goes_on(hypotheses):
            state = hypotheses.state
            return (state.step < until) & jnp.any(state.stopped == 0)

        hypotheses = lax.while_loop(goes_on, body, hypotheses)
        return _best(hypotheses, penalty, doubt)

    return search


def _extend(hypotheses: Beams, scores: Any, stops: Any) -> Beams:
    """The best continuations by one token, ``beams`` of each row."""
    state, (batch, beams) = hypotheses.state, hypotheses.scores.shape
    vocabulary = scores.shape[-1]
    chances = jax.nn.log_softmax(scores.astype(jnp.float32))
    chances = chances.reshape(batch, beams, vocabulary)
    # One that has stopped goes on in one way alone, at no cost.
    over = (state.stopped != 0).reshape(batch, beams, 1)
    rest = jnp.where(jnp.arange(vocabulary) == 0, 0.0, -jnp.inf)
    chances = jnp.where(over, rest, chances)
    totals = (hypotheses.scores[..., None] + chances).reshape(batch, -1)
    best, places = lax.top_k(totals, beams)  # [batch, beams]
    parents = places // vocabulary + jnp.arange(batch)[:, None] * beams
    parents, token = parents.reshape(-1), (places % vocabulary).reshape(-1)
    per_row = (state.memory, state.tokens, state.tail, state.count, state.stopped)
    memory, tokens, tail, count, stopped = jax.tree.map(lambda v: v[parents], per_row)
    going = stopped == 0
    tail = jnp.concatenate([tail[:, 1:], token[:, None]], axis=1)
    state = dataclasses.replace(
        state,
        memory=memory,
        tokens=lax.dynamic_update_slice(
            tokens, token[:, None].astype(jnp.int32), (0, state.step)
        ),
        tail=tail,
        count=count + going,
        stopped=jnp.where(going, find_stop(tail, stops), stopped),
        step=state.step + 1,
    )
    return Beams(state, best)


def _best(
    hypotheses: Beams, penalty: Any, doubt: Any
) -> tuple[GenerationReport, jax.Array]:
    """The best beam of each row, and its score."""
    state, (batch, beams) = hypotheses.state, hypotheses.scores.shape
    counts = state.count.reshape(batch, beams)
    scores = hypotheses.scores / counts.astype(jnp.float32) ** penalty
    best = scores.argmax(axis=-1)
    rows = best + jnp.arange(batch) * beams
    report = GenerationReport(
        state.tokens[rows],
        state.count[rows],
        state.stopped[rows],
        state.step,
        doubt,
    )
    return report, scores.max(axis=-1)
