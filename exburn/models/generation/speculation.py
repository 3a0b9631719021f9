"""The compiled loop that writes several tokens of a row in one pass of the model.

A drafter proposes tokens (``drafting.py``), and one pass gives the scores after the
last token and after each proposed one. From each of them the model's token is chosen
with the sampler and the key that it has without a draft. The first proposed tokens that
are the chosen ones are accepted, and the token after them is right as well, as its
scores saw accepted ones alone. So a text is the one without a draft, whatever is
proposed, for any sampler and any function as one.

With a sampler that draws, this is speculative sampling with common random numbers: a
token that is proposed for sure is accepted with its probability, as by the rule of
Leviathan et al. (2023); one that a model draws, with the same key, a little less often
than by that rule, but the text does not depend on the draft.

Rows accept unlike numbers of tokens, so each has its own positions (``SpanCache``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from exburn.models.generation.drafting import Drafter, with_tokens
from exburn.models.generation.invariants import hoist
from exburn.models.generation.loop import (
    NO_TOKEN,
    GenerationReport,
    choose,
    find_stop,
    seen_by,
)
from exburn.models.generation.memory import CachedMemory


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SpeculativeState:
    """What one call of the loop leaves for the next.

    Attributes:
        memory: What the model remembers.
        draft: What the drafter does.
        text: ``[batch, slots]``: the prompts, and behind each what was written.
        lengths, tail, count, stopped, seen: As of ``loop.State``, but that a row has
            written ``count`` tokens, and no more.
        tally: ``[batch, 4]``: drafted tokens, accepted ones, passes, and tokens that
            these wrote.
    """

    memory: Any
    draft: Any
    text: jax.Array
    lengths: jax.Array
    tail: jax.Array
    count: jax.Array
    stopped: jax.Array
    seen: jax.Array | None
    tally: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SpeculativeReport(GenerationReport):
    """What the host reads of a state; ``tally`` as of it."""

    tally: jax.Array


def make_begin(memory: CachedMemory, drafter: Drafter) -> Callable:
    """The program that reads the prompts, for the model and the draft."""

    def begin(groups, ids, lengths, sampler, stops, key, most: int):
        own, others = groups
        (rows, prompt), slots = ids.shape, ids.shape[1] + most + drafter.tokens + 1
        cache, scores, doubt = memory.begin(own, ids, lengths, slots)
        state = SpeculativeState(
            memory=cache,
            draft=drafter.begin(others, ids, lengths, slots),
            text=jnp.pad(ids, ((0, 0), (0, slots - prompt))),
            lengths=lengths,
            tail=jnp.full((rows, stops.shape[1]), NO_TOKEN, jnp.int32),
            count=jnp.zeros(rows, jnp.int32),
            stopped=jnp.zeros(rows, jnp.int32),
            seen=seen_by(sampler, ids, lengths, scores.shape[-1]),
            tally=jnp.zeros((rows, 4), jnp.int32),
        )
        first = choose(sampler, scores, state.seen, key, 0)[:, None]
        nothing = jnp.zeros((rows, 0), jnp.int32)
        state = _append(state, nothing, first, stops, 1)
        state = dataclasses.replace(state, tally=jnp.zeros_like(state.tally))
        return state, _report_of(state, doubt, most)

    return begin


def make_go_on(memory: CachedMemory, stride: int, drafter: Drafter) -> Callable:
    """The program that writes more tokens.

    Args:
        stride: As of ``loop.make_go_on``; as a pass writes several tokens, it is a
            quarter of that. Where it is 1, looks cost nothing: then passes are over one
            token where nothing is proposed.
    """
    narrows = drafter.may_pass and stride == 1
    stride = -(-stride // 4)

    def go_on(groups, state, sampler, stops, key, until, prompt: int):
        own, others = groups
        rows, choose_next = len(state.lengths), partial(_choose, sampler, key)
        propose = drafter.proposer(others, state)

        def pass_over(count: int) -> Callable:
            tokens = jnp.zeros((rows, count), jnp.int32)
            return hoist(memory.extend, own, state.memory, tokens, state.lengths)

        wide = pass_over(drafter.tokens + 1)
        narrow = pass_over(1) if narrows else None

        def draft(state):
            memory, drafts = propose(state, choose_next)
            return dataclasses.replace(state, draft=memory), drafts

        def verify(extend, state, drafts):
            cache, scores = extend(state.memory, *_span(state, drafts))
            seen = _seen_after_each(state.seen, drafts)
            steps = state.count[:, None] + jnp.arange(drafts.shape[1] + 1)
            tokens = jax.vmap(choose_next, (1, 1, 1), 1)(scores, seen, steps)
            state = dataclasses.replace(state, memory=cache)
            return _append(state, drafts, tokens, stops, until)

        def going(state):
            return (state.stopped == 0) & (state.count < until)

        def has_nothing(carry):
            state, drafts = carry
            goes = going(state)
            return goes.any() & ~(goes & (drafts[:, 0] >= 0)).any()

        def one(state):
            carry = draft(state)
            if narrows:
                carry = lax.while_loop(
                    has_nothing,
                    lambda carry: draft(verify(narrow, carry[0], carry[1][:, :0])),
                    carry,
                )
            return verify(wide, *carry)

        def body(state):
            if stride == 1:
                return one(state)
            return lax.scan(lambda s, _: (one(s), None), state, None, length=stride)[0]

        state = lax.while_loop(lambda state: going(state).any(), body, state)
        most = state.text.shape[1] - prompt - drafter.tokens - 1
        return state, _report_of(state, jnp.zeros(()), most)

    return go_on


def accept(drafts: jax.Array, tokens: jax.Array) -> jax.Array:
    """``[batch]``: how many of the first drafted tokens are the chosen ones.

    Args:
        drafts: ``[batch, count]``.
        tokens: ``[batch, count + 1]``: those chosen after the last token and after each
            drafted one.

    Example:
        >>> drafts = jnp.array([[4, 5, 6], [4, 5, 6]])
        >>> accept(drafts, jnp.array([[4, 5, 7, 8], [1, 5, 6, 8]])).tolist()
        [2, 0]
    """
    same = drafts == tokens[:, :-1]
    return jnp.cumprod(same.astype(jnp.int32), axis=1).sum(axis=1)


def _choose(sampler: Any, key: Any, scores: Any, seen: Any, step: Any) -> jax.Array:
    return choose(sampler, scores, seen, key, step)


def _span(state: SpeculativeState, drafts: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The last token of each row with the drafted ones, and its position."""
    starts = state.lengths + state.count - 1
    last = jnp.take_along_axis(state.text, starts[:, None], axis=1)
    return jnp.concatenate([last, jnp.maximum(drafts, 0)], axis=1), starts


def _seen_after_each(seen: Any, drafts: jax.Array) -> jax.Array | None:
    """``[batch, count + 1, vocabulary]``: what rows have had with the first drafts."""
    if seen is None:
        return None
    each = [seen]
    for place in range(drafts.shape[1]):
        seen = with_tokens(seen, drafts[:, place : place + 1])
        each.append(seen)
    return jnp.stack(each, axis=1)


def _append(state, drafts, tokens, stops, until) -> SpeculativeState:
    """The state with the tokens of a pass that are right.

    Args:
        drafts, tokens: As of ``accept``.
        until: Tokens that a row may have.
    """
    going = (state.stopped == 0) & (state.count < until)
    accepted, tail = accept(drafts, tokens), state.tail.shape[1]
    recent = jnp.concatenate([state.tail, tokens], axis=1)
    met = jnp.stack(
        [
            find_stop(recent[:, place + 1 : place + 1 + tail], stops)
            for place in range(tokens.shape[1])
        ],
        axis=1,
    )  # [batch, count + 1]
    fresh = jnp.minimum(accepted + 1, until - state.count)
    at = jnp.arange(tokens.shape[1])[None]
    met = jnp.where(at < fresh[:, None], met, 0)
    ends = (met > 0).any(axis=1)
    first = jnp.argmax(met > 0, axis=1)
    fresh = jnp.where(going, jnp.where(ends, first + 1, fresh), 0)
    stopped = jnp.take_along_axis(met, first[:, None], axis=1)[:, 0]
    is_right = at < fresh[:, None]
    drafted, used = (drafts >= 0).sum(axis=1), jnp.minimum(accepted, fresh)
    numbers = (drafted, used, 1, fresh)
    tally = jnp.stack([jnp.where(going, number, 0) for number in numbers], axis=1)
    put = jax.vmap(lambda row, new, at: lax.dynamic_update_slice(row, new, (at,)))
    return dataclasses.replace(
        state,
        text=put(state.text, tokens, state.lengths + state.count),
        tail=jax.vmap(lambda row, at: lax.dynamic_slice(row, (at,), (tail,)))(
            recent, fresh
        ),
        count=state.count + fresh,
        stopped=jnp.where(going, stopped, state.stopped),
        seen=with_tokens(state.seen, jnp.where(is_right, tokens, NO_TOKEN)),
        tally=state.tally + tally,
    )


def _report_of(state: SpeculativeState, doubt: Any, most: int) -> SpeculativeReport:
    written = jax.vmap(lambda row, at: lax.dynamic_slice(row, (at,), (most,)))
    tokens = written(state.text, state.lengths)
    count, step = state.count, state.count.max()
    return SpeculativeReport(tokens, count, state.stopped, step, doubt, state.tally)
