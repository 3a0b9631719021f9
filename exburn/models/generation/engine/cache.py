"""Keys and values in pages: what layers see of them in one pass.

A row's tokens lie in the pages that its table names, in their order. An array of a call
of attention is ``[pages, tokens of a page, key heads, size]``, or, for the kernel of
NVIDIA's GPUs, ``[key heads, pages, tokens of a page, size]``. Those of int8 have the
scales of the heads behind them, ``[pages, tokens of a page, key heads]`` each.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from exburn.layers.attention.scaled_dot_product import bound_scores
from exburn.layers.contract.key_value_cache import Entry, KeyValueCache
from exburn.runtime.kernels import paged_attention
from exburn.runtime.kernels.cached_attention import round_heads


class PagedCache(KeyValueCache):
    """The cache in a pass over some tokens of each row.

    Args:
        entries: ``keys, values`` of each call of attention, and scales of int8.
        tables: ``[rows, number]``: a row's pages; where it has none, the number of all
            pages, which is none.
        starts: ``[rows]``: position of the pass' first token.
        counts: ``[rows]``: tokens of the pass; those behind fill it up, and are not
            kept.
        heads_first: How the arrays lie.
    """

    def __init__(
        self,
        entries: dict[str, Entry],
        tables: jax.Array,
        starts: jax.Array,
        counts: jax.Array,
        heads_first: bool = False,
    ):
        super().__init__(entries)
        self._tables, self._starts, self._counts = tables, starts, counts
        self._heads_first = heads_first
        self._masks: dict[int | None, jax.Array] = {}
        self._places: jax.Array | None = None

    def positions(self, count):
        return self._starts[:, None] + jnp.arange(count)[None]

    def attend(self, layer, query, key, value, *, whole, scale, window, soft_cap):
        name = self._name(layer)
        entry = self.entries[name]
        arrays = _sound(key, value, entry)
        keys, values, *scales = map(self._with, entry, arrays)
        self.entries[name] = keys, values, *scales
        query = query * jnp.asarray(scale, query.dtype)
        if self._heads_first and paged_attention.fits(query, keys, values, window):
            lengths = self._starts + 1
            return paged_attention.attend(
                query, keys, values, self._tables, lengths, soft_cap
            )
        rows, count, heads, size = query.shape
        groups = key.shape[2]
        query = query.reshape(rows, count, groups, heads // groups, size)
        # Turned, so that products run over whole rows: twice as fast on a CPU.
        turned = lax.optimization_barrier(
            [self._read(array) for array in (keys, values, *scales)]
        )
        keys, values, *scales = turned
        if scales:
            keys, values = keys.astype(query.dtype), values.astype(query.dtype)
        wide = jnp.promote_types(query.dtype, jnp.float32)
        scores = jnp.einsum(
            "rckhd,rksd->rkhcs", query, keys, preferred_element_type=wide
        )
        if scales:
            scores = scores * scales[0][:, :, None, None]
        scores = bound_scores(scores, soft_cap)
        seen = self._readable(window, count, keys.shape[2])[:, None, None]
        weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
        if scales:
            weights = weights * scales[1][:, :, None, None]
        out = jnp.einsum("rkhcs,rksv->rckhv", weights.astype(values.dtype), values)
        return out.reshape(rows, count, heads, -1)

    def _with(self, cache: jax.Array, heads: jax.Array) -> jax.Array:
        """The array with the tokens' heads in their places."""
        tokens = heads.reshape(-1, *heads.shape[2:])
        first = 1 if self._heads_first else 0
        pages, page = cache.shape[first], cache.shape[first + 1]
        size, places = pages * page, self._slots(pages, page, heads.shape[1])
        places = places.reshape(-1)
        if self._heads_first:  # one axis of places, before which nothing is turned
            tokens = tokens.swapaxes(0, 1)
            groups = len(cache)
            number = jnp.arange(groups)[:, None] * size + places
            places = jnp.where(places < size, number, groups * size).reshape(-1)
            tokens = tokens.reshape(-1, tokens.shape[-1])
        if len(places) == 1:
            # Of one place XLA's CPU makes a slice, and copies the cache for each: 36 ms
            # instead of 0.05 for 98 MB on one core.
            places, tokens = jnp.repeat(places, 2), jnp.repeat(tokens, 2, axis=0)
        flat = cache.reshape(-1, *tokens.shape[1:])
        return flat.at[places].set(tokens, mode="drop").reshape(cache.shape)

    def _slots(self, pages: int, page: int, count: int) -> jax.Array:
        """``[rows, count]``: places of the tokens among all of the cache."""
        if self._places is None:
            at = self.positions(count)
            column = jnp.minimum(at // page, self._tables.shape[1] - 1)
            number = jnp.take_along_axis(self._tables, column, axis=1)
            inside = jnp.arange(count)[None] < self._counts[:, None]
            inside &= (number < pages) & (at // page < self._tables.shape[1])
            self._places = jnp.where(inside, number * page + at % page, pages * page)
        return self._places

    def _read(self, heads: jax.Array) -> jax.Array:
        """``[rows, key heads, slots, size]``: all pages of each row."""
        rows = len(self._tables)
        if self._heads_first:
            parts = jnp.take(heads, self._tables, axis=1, mode="clip")
            return parts.reshape(len(heads), rows, -1, heads.shape[-1]).swapaxes(0, 1)
        parts = jnp.take(heads, self._tables, axis=0, mode="clip")
        return parts.reshape(rows, -1, *heads.shape[2:]).swapaxes(1, 2)

    def _readable(self, window: int | None, count: int, slots: int) -> jax.Array:
        """``[rows, count, slots]``: what a token sees; at least one slot, always."""
        if window not in self._masks:
            at, slot = self.positions(count)[..., None], jnp.arange(slots)
            seen = slot <= at
            if window is not None:
                seen &= at - slot < window
            # A token that only fills up may lie behind all slots.
            self._masks[window] = seen | (slot == slots - 1) & (at >= slots)
        return self._masks[window]


def _sound(keys: jax.Array, values: jax.Array, entry: Entry) -> Entry:
    """What an entry takes of keys and values, of which no value is NaN; the key is.

    A weight of zero times NaN is NaN, whoever sees the value or not, and pages go from
    text to text. Scores by a key are taken away where they are not seen.
    """
    key_type, value_type, *scales = (array.dtype for array in entry)
    if not scales:  # other types may overflow
        keys, values = keys.astype(key_type), values.astype(value_type)
    bad = ~jnp.isfinite(values).all(axis=-1, keepdims=True)
    keys, values = jnp.where(bad, jnp.nan, keys), jnp.where(bad, 0, values)
    if not scales:
        return keys, values
    (key_bits, keys), (value_bits, values) = map(round_heads, (keys, values))
    return key_bits, value_bits, keys, values
