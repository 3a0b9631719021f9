"""The programs that write tokens under masks, which are guessed for those behind.

``begin`` reads the prompts and chooses the first tokens, ``go_on`` writes more: the
first of them under masks that it is given, the others under those that it guesses
(``mask_table.py``). It tells the places of all, by which the host sees which tokens
are right, and goes on behind any of them: what was written after it is overwritten.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from exburn.models.generation.invariants import HoistedFunction
from exburn.models.generation.loop import (
    NO_TOKEN,
    State,
    append,
    choose,
    last_token,
    seen_by,
)
from exburn.models.generation.mask_table import guess_place
from exburn.models.generation.memory import Memory


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class FormState:
    """What one call leaves for the next.

    Attributes:
        loop: As of texts without a form.
        masks: ``uint32[places, words]``.
        places: ``[rows]``: those of the masks under which the next tokens come.
    """

    loop: State
    masks: jax.Array
    places: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Turn:
    """Where a call begins.

    Attributes:
        numbers: ``int32[4, rows]``: tokens that are right, the places of the masks,
            stops that were met, and where to keep the masks in the table; of ``-1``
            tokens: where the last call has ended.
        masks: ``uint32[rows, words]``: those of the next tokens.
    """

    numbers: Any
    masks: Any

    @classmethod
    def ahead(cls, rows: int, words: int) -> Turn:
        """Where the last call has ended."""
        numbers = jnp.full((4, rows), -1, jnp.int32)
        return cls(numbers, jnp.zeros((rows, words), jnp.uint32))


def make_begin(memory: Memory) -> Callable:
    """The program that reads the prompts and chooses the first tokens."""

    def begin(groups, ids, lengths, masks, turn, choice, most: int):
        (sampler, stops, _), prompt = choice, ids.shape[1]
        cache, scores, doubt = memory.begin(groups, ids, lengths, prompt + most)
        had = seen_by(sampler, ids, lengths, scores.shape[-1])
        state = State.fresh(cache, lengths, most, stops, had)
        _, places, stopped, _ = turn.numbers
        state = dataclasses.replace(state, stopped=stopped)
        state = _write(state, scores, turn.masks, choice)
        results = _advance_hoisted(memory, groups, state, prompt).begin(groups)
        report = _report(state, places)[:, None]
        return FormState(state, masks, places), results, had, report, doubt

    return begin


def make_go_on(memory: Memory) -> Callable:
    """The program that writes so many more tokens.

    It returns the state and a report, ``int32[3, steps, rows]``: the tokens, the places
    of the masks under which they came, and the stops that rows have met.
    """

    def go_on(groups, results, form, had, links, turn, choice, prompt: int, steps: int):
        form = _turn(form, turn, had)
        hoisted = _advance_hoisted(memory, groups, form.loop, prompt)
        advance = hoisted.rest(groups, results)

        def one(form, masks):
            state, places = form.loop, form.places
            arguments = state.memory, last_token(state), state.step - 1, state.lengths
            cache, scores = advance(*arguments)
            state = dataclasses.replace(state, memory=cache)
            state = _write(state, scores, masks, choice)
            behind = guess_place(links, places, last_token(state))
            form = dataclasses.replace(form, loop=state, places=behind)
            return form, _report(state, places)

        goes_on = turn.numbers[0] < 0
        masks = jnp.where(goes_on[:, None], form.masks[form.places], turn.masks)
        form, report = one(form, masks)
        if steps == 1:
            return form, report[:, None]
        form, others = lax.scan(
            lambda form, _: one(form, form.masks[form.places]),
            form,
            None,
            length=steps - 1,
        )
        report = jnp.concatenate([report[None], others])
        return form, report.swapaxes(0, 1)

    return go_on


def _turn(form: FormState, turn: Turn, had: Any) -> FormState:
    """The state where a call begins."""
    state, (step, places, stopped, slots) = form.loop, turn.numbers
    goes_on = step < 0
    step = jnp.where(goes_on[0], state.step, step[0])
    at = step + jnp.arange(-state.tail.shape[1], 0)
    tail = jnp.where(at >= 0, state.tokens[:, jnp.maximum(at, 0)], NO_TOKEN)
    state = dataclasses.replace(
        state,
        tail=tail,
        stopped=jnp.where(goes_on, state.stopped, stopped),
        step=step,
        seen=_seen_before(had, state.tokens, step),
    )
    slots = jnp.where(slots < 0, len(form.masks), slots)  # out of range: dropped
    return FormState(
        state,
        form.masks.at[slots].set(turn.masks, mode="drop"),
        jnp.where(goes_on, form.places, places),
    )


def _seen_before(had: Any, tokens: jax.Array, step: jax.Array) -> Any:
    """Which tokens rows have had, with the first ones of their answers."""
    if had is None:
        return None
    rows, most = tokens.shape
    right = jnp.where(jnp.arange(most) < step, tokens, had.shape[1])
    return had.at[jnp.arange(rows)[:, None], right].set(True, mode="drop")


def _write(state: State, scores: Any, masks: jax.Array, choice: tuple) -> State:
    """The state with a token of each row among those of its mask."""
    sampler, stops, key = choice
    bits = masks[:, :, None] >> jnp.arange(32, dtype=jnp.uint32) & 1
    allowed = bits.reshape(len(masks), -1)[:, : scores.shape[-1]] == 1
    scores = jnp.where(allowed, scores, -jnp.inf)
    return append(state, choose(sampler, scores, state.seen, key, state.step), stops)


def _report(state: State, places: jax.Array) -> jax.Array:
    return jnp.stack([last_token(state), places, state.stopped])


def _advance_hoisted(
    memory: Memory, groups: Any, state: State, prompt: int
) -> HoistedFunction:
    def advance(groups, cache, token, step, lengths):
        return memory.advance(groups, cache, token, step, lengths, prompt)

    token = last_token(state)
    return HoistedFunction(
        advance, groups, state.memory, token, state.step, state.lengths
    )
