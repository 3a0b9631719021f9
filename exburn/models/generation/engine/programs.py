"""The two programs of an engine: one reads pieces of prompts, one writes tokens.

Both take the engine's state, which they consume, and rows of any of its slots: a table
of numbers for each (``Columns``), whose last columns are its pages. Rows that only fill
a program up have no slot and no page, and leave nothing behind.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from exburn.layers.contract.key_value_cache import Entry, PromptCache
from exburn.models.generation.engine.cache import PagedCache
from exburn.models.generation.engine.choosing import Choices, Chosen, Numbers, choose
from exburn.models.generation.invariants import hoist
from exburn.models.generation.memory import last_only, run_model
from exburn.models.generation.plan import GenerationPlan
from exburn.module.building import spec_like
from exburn.runtime.kernels import paged_attention
from exburn.training.program import Programs

#: Columns of whole numbers in front of a row's pages.
COLUMNS = ("slot", "start", "count", "length", "writes", "index", "seed", "top_k")
#: Columns of the numbers that are none.
REALS = ("temperature", "top_p", "min_p", "penalty")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EngineState:
    """What one call leaves for the next.

    Attributes:
        entries: Keys and values: ``cache.py``.
        token: ``[slots]``: each text's last token, of which no pass has seen any yet.
        seen: ``[slots, vocabulary]``: tokens that texts have had; ``None`` until one
            asks.
    """

    entries: dict[str, Entry]
    token: jax.Array
    seen: jax.Array | None = None


@dataclasses.dataclass(frozen=True)
class CacheLayout:
    """The arrays of a cache.

    Attributes:
        specs: Those of a page, by calls of attention: ``[page, key heads, size]``, and
            of the scales of int8 without the last.
        vocabulary: Number of the model's scores.
        heads_first: Whether the heads are the first axis, and pages the second.
    """

    specs: dict[str, tuple[jax.ShapeDtypeStruct, ...]]
    vocabulary: int
    heads_first: bool = False

    @classmethod
    def of(cls, plan: GenerationPlan, page: int) -> CacheLayout:
        """That of a model, read off a trace."""
        groups = jax.tree.map(spec_like, plan.split.peek())
        ids = jax.ShapeDtypeStruct((1, page), jnp.int32)

        def read(groups: Any, ids: Any) -> tuple:
            cache = PromptCache(page, plan.few_bits)
            scores = run_model(plan.split, groups, ids, cache)
            return cache.entries, scores

        entries, scores = jax.eval_shape(read, groups, ids)
        specs = {
            name: tuple(
                jax.ShapeDtypeStruct((page, a.shape[1], *a.shape[3:]), a.dtype)
                for a in arrays
            )
            for name, arrays in entries.items()
        }
        heads_first = paged_attention.suits(jax.tree.leaves(specs))
        return cls(specs, scores.shape[-1], heads_first)

    @property
    def page_bytes(self) -> int:
        """Bytes of a page, of all layers together."""
        leaves = jax.tree.leaves(self.specs)
        return sum(math.prod(v.shape) * v.dtype.itemsize for v in leaves)

    def state(self, pages: int, slots: int) -> EngineState:
        """A state with so many pages."""

        def zeros(spec: jax.ShapeDtypeStruct) -> jax.Array:
            page, heads, *size = spec.shape
            shape = (pages, page, heads, *size)
            if self.heads_first:
                shape = (heads, pages, page, *size)
            return jnp.zeros(shape, spec.dtype)

        entries = jax.tree.map(zeros, self.specs)
        return EngineState(entries, jnp.zeros(slots, jnp.int32))


class EnginePrograms:
    """The programs of an engine, which those of one model share."""

    def __init__(self, programs: Programs, plan: GenerationPlan, heads_first: bool):
        self._programs, self._plan = programs, plan
        self._first, self._kind = heads_first, "_by_kernel" if heads_first else ""
        self._kind += "_int8" if plan.few_bits else ""

    def read(self, groups: Any, state: EngineState, ids: Any, *args: Any) -> tuple:
        """The state after a piece of some prompts, and the tokens behind them.

        Args:
            ids: ``[rows, piece]``.
            args: Whole numbers, others, masks (or ``None``) and choices.
        """
        make = self._programs.further(
            f"engine_read{self._kind}",
            lambda: make_read(self._plan, self._first),
            donated=(1,),
            static=(6,),
        )
        return make(groups, state, ids, *args)

    def write(self, groups: Any, state: EngineState, *args: Any) -> tuple:
        """The state with some more tokens of each row, and these, ``[steps, rows]``.

        Args:
            args: Whole numbers, others, masks (or ``None``), choices, and steps.
        """
        make = self._programs.further(
            f"engine_write{self._kind}",
            lambda: make_write(self._plan, self._first),
            donated=(1,),
            static=(5, 6),
        )
        return make(groups, state, *args)

    def note(self, state: EngineState, slot: int, tokens: np.ndarray) -> EngineState:
        """The state where a slot has had these tokens, and no others."""
        make = self._programs.further("engine_note", lambda: _note, donated=(0,))
        size = 1 << max(len(tokens) - 1, 15).bit_length()
        filled = np.full(size, tokens[0], np.int32)
        filled[: len(tokens)] = tokens
        return dataclasses.replace(state, seen=make(state.seen, slot, filled))


def make_read(plan: GenerationPlan, heads_first: bool) -> Callable:
    """The program that reads a piece."""

    def read(groups, state, ids, whole, reals, masks, choices: Choices):
        row = _Rows(whole, reals, heads_first)
        cache = row.cache(state.entries, row.start, row.count)

        def prepare(copy: Any) -> None:
            if plan.last is not None:
                last_only(copy, plan.last, jnp.maximum(row.count, 1))

        scores = run_model(plan.split, groups, ids, cache, prepare, row.length)
        if scores.shape[1] > 1:
            at = jnp.maximum(row.count, 1)[:, None, None] - 1
            scores = jnp.take_along_axis(scores, at, axis=1)
        state = dataclasses.replace(state, entries=cache.entries)
        state, chosen = _append(state, row, scores[:, 0], 0, masks, choices)
        return state, jax.tree.map(lambda v: v[None], chosen)

    return read


def make_write(plan: GenerationPlan, heads_first: bool) -> Callable:
    """The program that writes tokens."""

    def write(groups, state, whole, reals, masks, choices: Choices, steps: int):
        row = _Rows(whole, reals, heads_first)

        def advance(groups, entries, token, step):
            cache = row.cache(entries, row.start + step, row.count)
            scores = run_model(plan.split, groups, token[:, None], cache)
            return cache.entries, scores[:, 0]

        def one(advance, state, step):
            token = jnp.take(state.token, row.slot, mode="clip")
            entries, scores = advance(state.entries, token, step)
            state = dataclasses.replace(state, entries=entries)
            return _append(state, row, scores, step, masks, choices)

        if steps == 1:
            first = jnp.zeros((), jnp.int32)
            state, chosen = one(lambda *a: advance(groups, *a), state, first)
            return state, jax.tree.map(lambda v: v[None], chosen)
        token = jnp.take(state.token, row.slot, mode="clip")
        step = jnp.zeros((), jnp.int32)
        rest = hoist(advance, groups, state.entries, token, step)
        return lax.scan(lambda s, i: one(rest, s, i), state, jnp.arange(steps))

    return write


class _Rows:
    """The rows of a call, by the columns of their numbers."""

    def __init__(self, whole: jax.Array, reals: jax.Array, heads_first: bool):
        self._first = heads_first
        columns = dict(zip(COLUMNS, whole.T, strict=False))
        others = dict(zip(REALS, reals.T, strict=True))
        self.slot, self.start = columns["slot"], columns["start"]
        self.count, self.length = columns["count"], columns["length"]
        self.writes = columns["writes"]
        self._tables = whole[:, len(COLUMNS) :]
        self._numbers = Numbers(
            temperature=others["temperature"],
            top_k=columns["top_k"],
            top_p=others["top_p"],
            min_p=others["min_p"],
            penalty=others["penalty"],
            seed=lax.bitcast_convert_type(columns["seed"], jnp.uint32),
            index=columns["index"],
        )

    def cache(self, entries: Any, starts: Any, counts: Any) -> PagedCache:
        """What layers see of the cache in a pass over these rows."""
        return PagedCache(entries, self._tables, starts, counts, self._first)

    def numbers(self, step: Any) -> Numbers:
        """How the token of a step is chosen."""
        return dataclasses.replace(self._numbers, index=self._numbers.index + step)


def _append(
    state: EngineState, row: _Rows, scores: Any, step: Any, masks: Any, choices: Choices
) -> tuple[EngineState, Chosen]:
    """The state with the next tokens of rows that write, and these."""
    seen = state.seen if choices.penalty else None
    had = None
    if seen is not None:
        had = jnp.take(seen, row.slot, axis=0, mode="clip")
    chosen = choose(scores, row.numbers(step), had, masks, choices)
    slots = state.token.shape[0]
    slot = jnp.where(row.writes > 0, row.slot, slots)  # out of range: dropped
    state = dataclasses.replace(
        state, token=state.token.at[slot].set(chosen.token, mode="drop")
    )
    if seen is not None:
        seen = seen.at[slot, chosen.token].set(True, mode="drop")
        state = dataclasses.replace(state, seen=seen)
    return state, chosen


def _note(seen: jax.Array, slot: Any, tokens: jax.Array) -> jax.Array:
    fresh = jnp.zeros(seen.shape[1], bool).at[tokens].set(True)
    return seen.at[slot].set(fresh)
