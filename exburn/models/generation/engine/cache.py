"""Keys and values in pages: what layers see of them in one pass.

An array of a call of attention is ``[pages, tokens of a page, key heads, size]``; a
row's tokens lie in the pages that its table names, in their order.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from exburn.layers.attention.scaled_dot_product import bound_scores
from exburn.layers.contract.key_value_cache import Entry, KeyValueCache


class PagedCache(KeyValueCache):
    """The cache in a pass over some tokens of each row.

    Args:
        entries: ``keys, values`` of each call of attention.
        tables: ``[rows, number]``: a row's pages; where it has none, the number of all
            pages, which is none.
        starts: ``[rows]``: position of the pass' first token.
        counts: ``[rows]``: tokens of the pass; those behind fill it up, and are not
            kept.
    """

    def __init__(
        self,
        entries: dict[str, Entry],
        tables: jax.Array,
        starts: jax.Array,
        counts: jax.Array,
    ):
        super().__init__(entries)
        self._tables, self._starts, self._counts = tables, starts, counts
        self._masks: dict[int | None, jax.Array] = {}
        self._places: jax.Array | None = None

    def positions(self, count):
        return self._starts[:, None] + jnp.arange(count)[None]

    def attend(self, layer, query, key, value, *, whole, scale, window, soft_cap):
        name = self._name(layer)
        keys, values = self.entries[name]
        pages, page = keys.shape[:2]
        rows, count, heads, size = query.shape
        places = self._slots(pages, page, count)
        keys, values = _put(keys, key, places), _put(values, value, places)
        self.entries[name] = keys, values
        groups = key.shape[2]
        query = (query * jnp.asarray(scale, query.dtype)).reshape(
            rows, count, groups, heads // groups, size
        )
        keys, values = self._read(keys), self._read(values)  # [rows, slots, groups, …]
        wide = jnp.promote_types(query.dtype, jnp.float32)
        scores = jnp.einsum(
            "rckhd,rskd->rkhcs", query, keys, preferred_element_type=wide
        )
        scores = bound_scores(scores, soft_cap)
        seen = self._readable(window, count, keys.shape[1])[:, None, None]
        weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
        out = jnp.einsum("rkhcs,rskv->rckhv", weights.astype(values.dtype), values)
        return out.reshape(rows, count, heads, -1)

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
        """``[rows, slots, key heads, size]``: all pages of each row."""
        rows, number = self._tables.shape
        parts = jnp.take(heads, self._tables, axis=0, mode="clip")
        return parts.reshape(rows, number * heads.shape[1], *heads.shape[2:])

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


def _put(cache: jax.Array, heads: jax.Array, places: jax.Array) -> jax.Array:
    """The cache with the tokens' heads at their places."""
    flat = cache.reshape(-1, *cache.shape[2:])
    tokens = heads.reshape(-1, *heads.shape[2:]).astype(cache.dtype)
    flat = flat.at[places.reshape(-1)].set(tokens, mode="drop")
    return flat.reshape(cache.shape)
