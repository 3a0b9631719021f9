"""Keys and values of the tokens that a pass which generates text does not see again.

The arrays belong to the state of the program that generates, which gives them to a pass
and takes the new ones from it; no layer holds any. Layers find the cache in the forward
context: attention reads and writes it, positions come from it.

A row has ``prompt`` slots for its prompt, which begins at the first and may end before
the last of them, and behind them one for each token that was generated. So all rows
write one slot at a time, whatever the lengths of their prompts, and slots that a short
prompt leaves free are not read. Rows that do not write as many tokens in a pass have
each token in the slot of its position instead (``SpanCache``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from exburn.core import forward_context
from exburn.errors import ArgumentError
from exburn.layers.attention.scaled_dot_product import bound_scores
from exburn.runtime.kernels import cached_attention
from exburn.runtime.kernels.cached_attention import Heads, Reading, round_heads

Entry = tuple[jax.Array, ...]


class KeyValueCache:
    """What layers see of the cache in one pass.

    Attributes:
        entries: ``keys, values`` of each call of attention, by the layer's path and the
            number of the call: ``[batch, key heads, slots, size]``. Those of int8 have
            scales behind them, ``[batch, key heads, slots]`` each.
    """

    def __init__(self, entries: dict[str, Entry]):
        self.entries = dict(entries)
        self._calls: Counter[str] = Counter()

    def positions(self, count: Any) -> jax.Array:
        """Positions of the pass' tokens, ``[batch or 1, count]``."""
        raise NotImplementedError

    def attend(
        self,
        layer: Any,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        *,
        whole: Callable[..., jax.Array],
        scale: float,
        window: int | None,
        soft_cap: float | None,
    ) -> jax.Array:
        """What the heads read, ``[batch, tokens, heads, value size]``.

        Args:
            layer: The layer, whose path names the entry.
            query: ``[batch, tokens, heads, size]``.
            key, value: ``[batch, tokens, key heads, size]`` of the same tokens.
            whole: Causal attention among the pass' tokens alone.
            scale: Factor of the scores.
            window: Whether a token sees only those less than this many steps away.
            soft_cap: Bound of the scores, or None.
        """
        raise NotImplementedError

    def limit_positions(self, count: int) -> None:
        """Notes that there are no more than so many positions."""

    def note_turning_length(self, count: int) -> None:
        """Notes that all tokens of texts of more than ``count`` have other keys."""

    def note_part(self, heads: jax.Array, product: jax.Array, offset: int) -> None:
        """Notes that heads are entries of a product, ``[batch, tokens, …]``."""

    def note_turned(
        self,
        turned: jax.Array,
        heads: jax.Array,
        angles: tuple[jax.Array, jax.Array],
        layer: Any,
    ) -> None:
        """Notes the heads that a layer turned, and by which cosines and sines."""

    def _name(self, layer: Any) -> str:
        """The entry of this call."""
        ctx = forward_context.current()
        paths = {} if ctx is None else ctx.paths
        path = str(paths.get(id(layer), layer.name))
        self._calls[path] += 1
        return f"{path}:{self._calls[path]}"


class PromptCache(KeyValueCache):
    """The cache in the pass over the prompts, which makes its arrays.

    Args:
        slots: Slots of a row.
        few_bits: Whether keys and values are kept as int8, each head of a token with a
            scale.
    """

    def __init__(self, slots: int, few_bits: bool = False):
        super().__init__({})
        self._slots, self._few_bits = slots, few_bits

    def positions(self, count):
        return jnp.arange(count)[None]

    def attend(self, layer, query, key, value, *, whole, scale, window, soft_cap):
        arrays = key, value
        if self._few_bits:
            (key_bits, keys), (value_bits, values) = map(round_heads, arrays)
            arrays = key_bits, value_bits, keys, values
        self.entries[self._name(layer)] = tuple(map(self._pad, arrays))
        return whole(query, key, value)

    def _pad(self, heads: jax.Array) -> jax.Array:
        widths = [(0, 0)] * heads.ndim
        widths[2] = 0, self._slots - heads.shape[1]
        return jnp.pad(heads.swapaxes(1, 2), widths)


class StepCache(KeyValueCache):
    """The cache in a pass over one token of each row.

    Args:
        entries: The arrays so far.
        lengths: ``[batch]``: tokens of the prompts.
        prompt: Slots of the prompts.
        index: Slot of the token.
    """

    def __init__(
        self, entries: dict[str, Entry], lengths: jax.Array, prompt: int, index: Any
    ):
        super().__init__(entries)
        self._lengths, self._prompt, self._index = lengths, prompt, index
        self._seen: dict[int | None, jax.Array] = {}
        self._parts: dict[int, tuple] = {}
        self._turned: dict[int, tuple] = {}

    def positions(self, count):
        return (self._lengths + self._index - self._prompt)[:, None]

    def note_part(self, heads, product, offset):
        self._parts[id(heads)] = heads, Heads(product, offset)

    def note_turned(self, turned, heads, angles, layer):
        self._turned[id(turned)] = turned, heads, angles, layer

    def attend(self, layer, query, key, value, *, whole, scale, window, soft_cap):
        name, (batch, _, heads, size) = self._name(layer), query.shape
        entry = self.entries[name]
        if cached_attention.fits(query, entry):
            reading = Reading(heads, self._prompt, scale, window, soft_cap)
            out, self.entries[name] = self._attend_by_kernel(
                query, key, value, entry, reading
            )
            return out.reshape(batch, 1, heads, -1)
        keys, values, *scales = entry = self._with(entry, key, value)
        self.entries[name] = entry
        groups = keys.shape[1]
        query = (query * jnp.asarray(scale, query.dtype)).reshape(
            batch, groups, heads // groups, size
        )
        wide = jnp.promote_types(query.dtype, jnp.float32)
        if scales:
            keys, values = keys.astype(query.dtype), values.astype(query.dtype)
        scores = jnp.einsum("bkgh,bksh->bkgs", query, keys, preferred_element_type=wide)
        if scales:
            scores = scores * scales[0][:, :, None]
        scores = bound_scores(scores, soft_cap)
        seen = self._readable(window, keys.shape[2])[:, None, None]
        weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
        if scales:
            weights = weights * scales[1][:, :, None]
        out = jnp.einsum("bkgs,bksv->bkgv", weights.astype(values.dtype), values)
        return out.reshape(batch, 1, heads, -1)

    def _attend_by_kernel(self, query, key, value, entry, reading) -> tuple:
        """The heads read by one kernel, which turns them and takes the token in."""
        first, second = (self._turned.get(id(heads)) for heads in (query, key))
        angles = None
        if first is not None and second is not None and first[3] is second[3]:
            _, query, (cos, sin), _ = first
            key, rows = second[1], query.shape[0]
            cos, sin = (jnp.broadcast_to(v, (rows, *v.shape[1:])) for v in (cos, sin))
            angles = cos, sin
        query, key, value = (
            self._parts.get(id(heads), (heads, Heads(heads)))[1]
            for heads in (query, key, value)
        )
        place = self._lengths, self._index
        return cached_attention.attend(
            query, key, value, entry, *place, reading, angles
        )

    def _with(self, entry: Entry, key: jax.Array, value: jax.Array) -> Entry:
        """The entry with the token's heads in its slot."""
        arrays = key, value
        if len(entry) > 2:
            (key_bits, keys), (value_bits, values) = map(round_heads, arrays)
            arrays = key_bits, value_bits, keys, values
        place = 0, 0, self._index, 0
        return tuple(
            lax.dynamic_update_slice(
                old, new.swapaxes(1, 2).astype(old.dtype), place[: old.ndim]
            )
            for old, new in zip(entry, arrays, strict=True)
        )

    def _readable(self, window: int | None, slots: int) -> jax.Array:
        """``[batch, slots]``: which slots the token sees; it always sees its own."""
        if window not in self._seen:
            slot, lengths = jnp.arange(slots)[None], self._lengths[:, None]
            seen = (slot < lengths) | ((slot >= self._prompt) & (slot <= self._index))
            if window is not None:
                behind = slot >= self._prompt
                place = jnp.where(behind, lengths + slot - self._prompt, slot)
                seen &= lengths + self._index - self._prompt - place < window
            self._seen[window] = seen
        return self._seen[window]


class SpanCache(KeyValueCache):
    """The cache in a pass over several tokens of each row, at places of its own.

    The slot of a token is its position in the row's text, prompt and all, so rows need
    not have as many tokens. A pass writes its tokens over what the slots held: tokens
    that are taken back need nothing but a pass that begins before them.

    Args:
        entries: The arrays so far, of rows whose prompts begin in the first slot.
        starts: ``[batch]``: the position of each row's first token of the pass; there
            are slots for all of them.
    """

    def __init__(self, entries: dict[str, Entry], starts: jax.Array):
        super().__init__(entries)
        self._starts = starts
        self._seen: dict[int | None, jax.Array] = {}

    def positions(self, count):
        return self._starts[:, None] + jnp.arange(count)[None]

    def attend(self, layer, query, key, value, *, whole, scale, window, soft_cap):
        name = self._name(layer)
        keys, values = self.entries[name]
        keys = self._with(keys, key)
        values = self._with(values, value)
        self.entries[name] = keys, values
        batch, tokens, heads, size = query.shape
        groups = keys.shape[1]
        each = heads // groups
        query = query * jnp.asarray(scale, query.dtype)
        # One axis for a group's tokens and heads: with two, XLA's CPU turns the scores,
        # which takes three times as long for several rows.
        query = query.reshape(batch, tokens, groups, each, size).swapaxes(1, 2)
        query = query.reshape(batch, groups, tokens * each, size)
        wide = jnp.promote_types(query.dtype, jnp.float32)
        scores = jnp.einsum("bkqh,bksh->bkqs", query, keys, preferred_element_type=wide)
        scores = bound_scores(scores, soft_cap)
        seen = jnp.repeat(self._readable(window, tokens, keys.shape[2]), each, axis=1)
        weights = jax.nn.softmax(jnp.where(seen[:, None], scores, -jnp.inf), axis=-1)
        out = jnp.einsum("bkqs,bksv->bkqv", weights.astype(values.dtype), values)
        out = out.reshape(batch, groups, tokens, each, -1).swapaxes(1, 2)
        return out.reshape(batch, tokens, heads, -1)

    def _with(self, old: jax.Array, new: jax.Array) -> jax.Array:
        """The array with the tokens' heads in their slots."""

        def put(row: jax.Array, heads: jax.Array, start: jax.Array) -> jax.Array:
            return lax.dynamic_update_slice(row, heads, (0, start, 0))

        return jax.vmap(put)(old, new.swapaxes(1, 2).astype(old.dtype), self._starts)

    def _readable(self, window: int | None, tokens: int, slots: int) -> jax.Array:
        """``[batch, tokens, slots]``: which slots each token sees, its own among
        them."""
        if window not in self._seen:
            steps = self.positions(tokens)[..., None] - jnp.arange(slots)
            seen = steps >= 0
            self._seen[window] = seen if window is None else seen & (steps < window)
        return self._seen[window]


class CacheProbe(KeyValueCache):
    """The cache in a pass that finds out what a model needs of it; it keeps nothing.

    Attention reads the token's own value, so that every position is computed by itself
    wherever nothing but attention leads from one to another.

    Args:
        places: Positions of the tokens, ``[1, tokens]``.

    Attributes:
        limit: The number of positions that there are, or ``None``.
        turning_lengths: Lengths of texts beyond which all keys are others.
    """

    def __init__(self, places: jax.Array):
        super().__init__({})
        self._places = places
        self.limit: int | None = None
        self.turning_lengths: set[int] = set()

    def positions(self, count):
        return self._places

    def attend(self, layer, query, key, value, *, whole, scale, window, soft_cap):
        self.entries[self._name(layer)] = ()  # its name alone
        return jnp.repeat(value, query.shape[2] // value.shape[2], axis=2)

    def limit_positions(self, count):
        self.limit = count if self.limit is None else min(self.limit, count)

    def note_turning_length(self, count):
        self.turning_lengths.add(count)


def current_cache() -> KeyValueCache | None:
    """The cache of the pass under way, or ``None`` outside of generation."""
    ctx = forward_context.current()
    return None if ctx is None else ctx.cache


def refuse(layer: Any, reason: str) -> None:
    """Raises because a call of attention has no place in a cache.

    Raises:
        ArgumentError: Always.
    """
    raise ArgumentError(layer.name, f"its keys and values cannot be kept: {reason}")
