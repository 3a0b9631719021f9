"""How drafted tokens come about, in the compiled loop of ``speculation.py``.

A drafter has a memory of its own in the loop's state. ``begin`` reads the prompts;
``proposer`` makes, in front of the loop, the function that proposes within it. That
takes the state and a function which chooses a row's token as the model's own are
chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from exburn.models.generation.invariants import hoist
from exburn.models.generation.loop import NO_TOKEN
from exburn.models.generation.memory import CachedMemory

Propose = Callable[[Any, Callable], tuple[Any, jax.Array]]


class Drafter(Protocol):
    """What proposes tokens.

    Attributes:
        tokens: How many for each row.
        may_pass: Whether it may propose none, so that a pass over one token is enough.
    """

    tokens: int
    may_pass: bool

    def begin(self, groups: Any, ids: Any, lengths: Any, slots: int) -> Any:
        """The memory of the prompts; arguments as of ``Memory.begin``."""
        ...

    def proposer(self, groups: Any, state: Any) -> Propose:
        """The function of ``(state, choose)`` that proposes.

        It returns the memory, and ``[batch, tokens]`` with ``NO_TOKEN`` where it
        proposes nothing. ``choose(scores, seen, step)`` is ``loop.choose`` with the
        sampler and the key of the call.

        Args:
            state: One of the loop's states, for its shapes.
        """
        ...


class LookupDrafter:
    """Proposes what followed the last tokens where they stood before.

    Args: those of ``PromptLookup``.
    """

    may_pass = True

    def __init__(self, tokens: int, least: int, most: int):
        self.tokens, self._least, self._most = tokens, least, most

    def begin(self, groups, ids, lengths, slots):
        return ()

    def proposer(self, groups, state):
        def propose(state: Any, choose: Callable) -> tuple[Any, jax.Array]:
            find = jax.vmap(self._continuation)
            return state.draft, find(state.text, state.lengths + state.count)

        return propose

    def _continuation(self, text: jax.Array, end: jax.Array) -> jax.Array:
        """``[tokens]``: what may follow a row's first ``end`` tokens, ``[slots]``."""
        place = jnp.arange(len(text))
        agree = jnp.ones(len(text), bool)
        length = jnp.zeros(len(text), jnp.int32)  # of the n-gram that ends at a place
        for back in range(self._most):
            before = jnp.roll(text, back)
            agree &= (before == text[end - 1 - back]) & (place >= back)
            length += agree
        length = jnp.where(place < end - 1, length, 0)
        best = jnp.argmax(length * len(text) + place * (length > 0))
        ahead = jnp.arange(self.tokens) % (end - 1 - best)  # the period, once more
        tokens = text[best + 1 + ahead]
        return jnp.where(length[best] >= self._least, tokens, NO_TOKEN)


class ModelDrafter:
    """Proposes what another model writes.

    Args:
        memory: How that model's scores come about.
        tokens: How many are proposed.
    """

    may_pass = False

    def __init__(self, memory: CachedMemory, tokens: int):
        self._memory, self.tokens = memory, tokens

    def begin(self, groups, ids, lengths, slots):
        return self._memory.begin(groups, ids, lengths, slots)[0]

    def proposer(self, groups, state):
        # The last pass of a round did not see its own token: the first of the next one
        # sees the last two.
        last = jnp.zeros((len(state.lengths), 2), jnp.int32)
        extend = self._memory.extend
        begin = hoist(extend, groups, state.draft, last, state.lengths)
        go_on = hoist(extend, groups, state.draft, last[:, :1], state.lengths)

        def propose(state: Any, choose: Callable) -> tuple[Any, jax.Array]:
            ends = state.lengths + state.count
            places = ends[:, None] - 2 + jnp.arange(2)[None]
            pair = jnp.take_along_axis(state.text, places, axis=1)
            memory, scores = begin(state.draft, pair, ends - 2)
            first = choose(scores[:, 1], state.seen, state.count)

            def one(carry: tuple, number: jax.Array) -> tuple:
                memory, token, seen = carry
                seen = with_tokens(seen, token[:, None])
                memory, scores = go_on(memory, token[:, None], ends + number)
                token = choose(scores[:, 0], seen, state.count + number + 1)
                return (memory, token, seen), token

            carry = memory, first, state.seen
            (memory, *_), rest = lax.scan(one, carry, jnp.arange(self.tokens - 1))
            return memory, jnp.concatenate([first[:, None], rest.T], axis=1)

        return propose


def with_tokens(seen: Any, tokens: jax.Array) -> Any:
    """Which tokens rows have had, with some more; negative ones do not count.

    Args:
        seen: ``[batch, vocabulary]``, or None.
        tokens: ``[batch, count]``.
    """
    if seen is None:
        return None
    rows, places = jnp.arange(len(tokens))[:, None], tokens
    places = jnp.where(places < 0, seen.shape[1], places)  # out of range: dropped
    return seen.at[rows, places].set(True, mode="drop")
