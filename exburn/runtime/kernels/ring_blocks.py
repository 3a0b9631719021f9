"""One block of keys beside one block of queries, as the ring of attention takes them.

Replaces: nothing.

Runs: within `ring_attention`. cuDNN's kernel computes blocks that need no mask but the
causal one of the diagonal; all others, and all on a CPU, are computed in the plain
form, a few queries at a time.

Gain: see `ring_attention`.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from exburn.errors import ExBurnError

LOWEST = -1e30  # the log of a sum of no terms, finite: differences of it are no NaN
QUERIES = 512  # of a piece in the plain form, whose scores are there at once


class Side(NamedTuple):
    """Where the queries or keys of a block are in their rows, and whose they are.

    Attributes:
        start: The position of the first.
        owners: ``[batch, positions]`` or ``None``: queries see keys of their own owner.
    """

    start: Any
    owners: Any


class Seen(NamedTuple):
    """Which keys queries see, by their distance; hashable.

    Attributes:
        causal: Whether none after themselves.
        window: Whether only those less than this many steps away.
        scale: Factor of the scores.
        soft_cap: Bound of the scores, or ``None``.
    """

    causal: bool
    window: int | None
    scale: float
    soft_cap: float | None

    def mask(self, queries: Side, keys: Side, targets: int, sources: int) -> Any:
        """Booleans that broadcast to ``[batch, 1, 1, targets, sources]``, or None."""
        ahead = (queries.start + jnp.arange(targets))[:, None]
        ahead = ahead - (keys.start + jnp.arange(sources))
        seen = None
        if self.causal:
            seen = ahead >= 0
        if self.window is not None:
            near = jnp.abs(ahead) < self.window
            seen = near if seen is None else seen & near
        if queries.owners is not None:
            own = queries.owners[:, :, None] == keys.owners[:, None]
            seen = own if seen is None else seen & own
            seen = seen[:, None, None]
        return seen


def attend_block(seen: Seen, query, key, value, queries: Side, keys: Side):
    """Attention to the keys of a block, and the log of the sum of its exponentials.

    Args:
        query: ``[batch, targets, heads, size]``.
        key, value: ``[batch, sources, key heads, size]``.

    Returns:
        ``[batch, targets, heads, size]`` and ``[batch, heads, targets]``, in float32 at
        least.
    """

    def attend(piece):
        query, queries = piece
        scores, _ = _scores(seen, query, key, queries, keys)
        highest = lax.stop_gradient(jnp.maximum(scores.max(-1, keepdims=True), LOWEST))
        weights = jnp.exp(scores - highest)
        total = weights.sum(-1, keepdims=True)
        shares = (weights / jnp.where(total > 0, total, 1)).astype(value.dtype)
        out = jnp.einsum(
            "bkgts,bskh->btkgh", shares, value, preferred_element_type=scores.dtype
        )
        log = jnp.where(total > 0, highest + jnp.log(total), LOWEST)[..., 0]
        return out.reshape(*query.shape[:3], value.shape[-1]), _flat_heads(log)

    outs, logs = lax.map(attend, _pieces(query, queries))
    return _join(outs, 1), _join(logs, 2)


def differentiate_block(
    seen: Seen, query, key, value, queries: Side, keys: Side, log, out, slope
):
    """Gradients of attention over all blocks with respect to one.

    Args:
        log: ``[batch, heads, targets]``: the log over all blocks.
        out: ``[batch, targets, heads, size]``: the output over all blocks.
        slope: Its gradient.

    Returns:
        The gradients of query, key and value, in float32 at least.
    """
    wide = log.dtype
    mean = (out.astype(wide) * slope.astype(wide)).sum(-1).swapaxes(1, 2)

    def differentiate(carry, piece):
        (query, queries), log, mean, slope = piece
        scores, bend = _scores(seen, query, key, queries, keys)
        groups = _head_groups(log, key)[..., None]
        weights = jnp.where(groups > LOWEST / 2, jnp.exp(scores - groups), 0)
        slope = _by_groups(slope, key)
        value_slope = jnp.einsum(
            "bkgts,btkgh->bskh",
            weights.astype(slope.dtype),
            slope,
            preferred_element_type=wide,
        )
        slopes = jnp.einsum(
            "btkgh,bskh->bkgts", slope, value, preferred_element_type=wide
        )
        slopes = weights * (slopes - _head_groups(mean, key)[..., None]) * seen.scale
        slopes = (slopes if bend is None else slopes * bend).astype(query.dtype)
        query_slope = jnp.einsum(
            "bkgts,bskh->btkgh", slopes, key, preferred_element_type=wide
        )
        key_slope = jnp.einsum(
            "bkgts,btkgh->bskh",
            slopes,
            _by_groups(query, key),
            preferred_element_type=wide,
        )
        carry = carry[0] + key_slope, carry[1] + value_slope
        return carry, query_slope.reshape(query.shape)

    count = _piece_count(query)
    sides = [_split(log, 2, count), _split(mean, 2, count), _split(slope, 1, count)]
    pieces = _pieces(query, queries), *sides
    zeros = jnp.zeros(key.shape, wide), jnp.zeros(value.shape, wide)
    (key_slope, value_slope), query_slopes = lax.scan(differentiate, zeros, pieces)
    return _join(query_slopes, 1), key_slope, value_slope


def _scores(seen: Seen, query, key, queries: Side, keys: Side):
    """Scores ``[batch, key heads, heads of each, targets, sources]``, -inf if unseen.

    The second result is the derivative of their bound, or ``None``.
    """
    scaled = query * jnp.asarray(seen.scale, query.dtype)
    scores = jnp.einsum(
        "btkgh,bskh->bkgts",
        _by_groups(scaled, key),
        key,
        preferred_element_type=jnp.promote_types(query.dtype, jnp.float32),
    )
    bend = None
    if seen.soft_cap is not None:
        bound = jnp.tanh(scores / seen.soft_cap)
        scores, bend = seen.soft_cap * bound, 1 - bound**2
    mask = seen.mask(queries, keys, query.shape[1], key.shape[1])
    return (scores if mask is None else jnp.where(mask, scores, -jnp.inf)), bend


def _by_groups(x, key):
    """``[batch, targets, key heads, heads of each, size]``"""
    batch, targets, heads, size = x.shape
    return x.reshape(batch, targets, key.shape[2], heads // key.shape[2], size)


def _head_groups(x, key):
    """``[batch, key heads, heads of each, targets]`` of ``[batch, heads, targets]``."""
    batch, heads, targets = x.shape
    return x.reshape(batch, key.shape[2], heads // key.shape[2], targets)


def _flat_heads(x):
    return x.reshape(x.shape[0], -1, x.shape[-1])


def _piece_count(query) -> int:
    """In how many equal pieces the queries are gone through."""
    size = math.gcd(query.shape[1], QUERIES)
    return query.shape[1] // size if size >= 64 else 1


def _pieces(query, queries: Side):
    count = _piece_count(query)
    size = query.shape[1] // count
    starts = queries.start + size * jnp.arange(count)
    owners = queries.owners
    owners = None if owners is None else _split(owners, 1, count)
    return _split(query, 1, count), Side(starts, owners)


def _split(x, axis: int, count: int):
    """The pieces of an axis, in front."""
    shape = *x.shape[:axis], count, x.shape[axis] // count, *x.shape[axis + 1 :]
    return jnp.moveaxis(x.reshape(shape), axis, 0)


def _join(x, axis: int):
    x = jnp.moveaxis(x, 0, axis)
    return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])


# ---------------------------------------------------------------------- cuDNN
def attend_block_by_cudnn(seen: Seen, query, key, value):
    """As `attend_block`, by positions alone, which begin together if it is causal."""
    call, _ = _cudnn_calls(seen, *map(_spec, (query, key, value)))
    primitive, params, rest = call
    out, log = primitive.bind(query, key, value, *rest(query.dtype), **params)
    return out.astype(log.dtype), log


def differentiate_block_by_cudnn(seen: Seen, query, key, value, log, out, slope):
    """As `differentiate_block`, by positions alone."""
    _, call = _cudnn_calls(seen, *map(_spec, (query, key, value)))
    primitive, params, rest = call
    beside = log, out, slope.astype(out.dtype)
    slopes = primitive.bind(query, key, value, *rest(query.dtype), *beside, **params)
    return tuple(x.astype(log.dtype) for x in slopes[:3])


def _spec(x) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


@functools.lru_cache(maxsize=64)
def _cudnn_calls(seen: Seen, query, key, value):
    """cuDNN's operations for a block, forward and backward, with their options.

    ``jax.nn.dot_product_attention`` gives the log in half precision only, and its
    gradient takes no log of other blocks. Both are operands of JAX's operations, which
    are found in the program of the public function.
    """
    window = None if seen.window is None else (seen.window - 1, 0)

    def attend(query, key, value):
        return jax.nn.dot_product_attention(
            query,
            key,
            value,
            scale=seen.scale,
            is_causal=seen.causal,
            local_window_size=window,
            implementation="cudnn",
        )

    def both(query, key, value, slope):
        return jax.vjp(attend, query, key, value)[1](slope)

    code = jax.make_jaxpr(both)(query, key, value, query).jaxpr
    calls = {}
    for equation in _equations(code):
        name, count = equation.primitive.name, len(equation.invars)
        for kind, operands in (("fwd", 10), ("bwd", 13)):
            if name.startswith(f"dot_product_attention_{kind}") and count == operands:
                calls[kind] = equation
    if set(calls) != {"fwd", "bwd"}:
        raise ExBurnError(
            "ring_attention",
            f"the form of cuDNN's attention in jax {jax.__version__} is not known",
            hint="config.disable_flash_attention() computes it in the plain form.",
        )

    def rest(dtype):  # bias, lengths, offsets, pages: none
        return (jnp.zeros(0, dtype),) * 7

    return tuple((calls[k].primitive, calls[k].params, rest) for k in ("fwd", "bwd"))


def _equations(code):
    for equation in code.eqns:
        yield equation
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda v: hasattr(v, "jaxpr")
        ):
            if hasattr(inner, "eqns"):
                yield from _equations(inner)
            elif hasattr(inner, "jaxpr"):
                yield from _equations(inner.jaxpr)
