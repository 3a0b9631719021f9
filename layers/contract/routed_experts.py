"""Gated networks of which each token takes a few, and the forms of their products.

All forms give the same; `choose_form` says which one is computed:

* ``"every"``: each network on all tokens, one after another, times the token's share.
* ``"blocks"``: the tokens of each network together, in blocks of equal size, each with
  a copy of its network's weights; the rest of a network's last block is zeros.
* ``"ragged"``: the tokens of each network together, by ``jax.lax.ragged_dot``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from exburn.runtime.kernels.dispatch import by_rows, device_part

# What it costs to copy a network's weights, in tokens that it computes instead; and
# what to read them once. On a processor measured by `benchmarks/experts.py` (2 cores of
# an EPYC, float32), on a GPU by arithmetic from the figures of an H100: bfloat16, 600
# products in the time in which a weight is read and written.
_COPY = {"cpu": 32, "gpu": 600}
_READ = {"cpu": 16, "gpu": 300}


class Form(NamedTuple):
    """How the products are computed.

    Attributes:
        name: ``"every"``, ``"blocks"`` or ``"ragged"``.
        block: Tokens of a block.
    """

    name: str
    block: int = 0


def choose_form(tokens: Any, experts: int, top_k: int, platform: str) -> Form:
    """The form that takes the least time.

    ``ragged_dot`` is one only on a TPU. Elsewhere XLA computes it as the product of
    all ``tokens * top_k`` rows with each expert: 2 to 12 times the time of ``"every"``
    on a processor.

    Args:
        tokens: How many there are; a symbol while they are not known.

    Example:
        >>> choose_form(1, 64, 8, "cpu"), choose_form(16, 64, 8, "cpu").name
        (Form(name='blocks', block=1), 'every')
    """
    if platform == "tpu":
        return Form("ragged")
    if not isinstance(tokens, int):
        return Form("every")
    rows, kind = tokens * top_k, "cpu" if platform == "cpu" else "gpu"
    sizes = [1 << power for power in range(rows.bit_length() + 1)]
    costs = [
        (block_count(rows, experts, size) * (size + _COPY[kind]), size)
        for size in sizes
    ]
    cost, size = min(costs)
    every = experts * (tokens + _READ[kind])
    return Form("blocks", size) if cost < every else Form("every")


def block_count(rows: int, experts: int, size: int) -> int:
    """Blocks that are enough, however the rows are divided among the experts.

    Example:
        >>> block_count(3, 8, 1), block_count(100, 8, 16)
        (3, 13)
    """
    return min(rows, (rows + experts * (size - 1)) // size)


def route_experts(
    x: jax.Array,
    choices: jax.Array,
    shares: jax.Array,
    weights: tuple[Any, Any, Any],
    activation: Callable[[Any], Any],
    form: Form | None = None,
) -> jax.Array:
    """``Σ share · (activation(x gate) * x up) down`` over each token's experts.

    Args:
        x: ``[batch, time, width]``.
        choices: ``[batch, time, top_k]``: numbers of the token's experts, which differ.
        shares: The same of their shares.
        weights: ``gate`` and ``up``, ``[experts, width, units]``, and ``down``,
            ``[experts, units, width]``.
        form: By ``choose_form`` if None.

    Returns:
        ``[batch, time, width]``, in the dtype of ``x``.
    """
    part = device_part(x)
    if form is None:
        rows = (x if part is None else part).shape
        platform = jax.default_backend()
        tokens = rows[0] * rows[1]
        form = choose_form(tokens, weights[0].shape[0], choices.shape[-1], platform)
    run: Callable = functools.partial(
        exburn_routed_experts, activation=activation, form=form
    )
    if part is not None:  # each device routes the tokens that it has
        run = by_rows(run, (0, 0, 0, None, None, None), 0)
    return run(x, choices, shares, *weights)


# Not inlined: by its name ``batch_independence`` knows it, which sorts tokens, and
# gives each what it would have alone.
@functools.partial(jax.jit, static_argnames=("activation", "form"))
def exburn_routed_experts(
    x: Any,
    choices: Any,
    shares: Any,
    gate: Any,
    up: Any,
    down: Any,
    *,
    activation: Callable[[Any], Any],
    form: Form,
) -> jax.Array:
    """``route_experts`` on one device."""
    rows = x.reshape(-1, x.shape[-1])
    choices, shares = (v.reshape(rows.shape[0], -1) for v in (choices, shares))
    weights = gate, up, down
    if form.name == "every":
        y = _by_every(rows, choices, shares, weights, activation)
    elif form.name == "blocks":
        y = _by_blocks(rows, choices, shares, weights, activation, form.block)
    else:
        y = _by_ragged(rows, choices, shares, weights, activation)
    return y.astype(x.dtype).reshape(x.shape)


def _by_every(x, choices, shares, weights, activation):
    experts = jnp.arange(weights[0].shape[0])

    def add(total: Any, one: tuple) -> tuple:
        number, gate, up, down = one
        share = jnp.where(choices == number, shares, 0).sum(-1, keepdims=True)
        y = (activation(x @ gate) * (x @ up)) @ down
        return total + y * share.astype(total.dtype), None

    wide = jnp.promote_types(x.dtype, jnp.float32)
    zeros = jnp.zeros(x.shape, wide)
    return lax.scan(jax.checkpoint(add), zeros, (experts, *weights))[0]


def _by_blocks(x, choices, shares, weights, activation, size):
    (tokens, width), top_k, experts = x.shape, choices.shape[1], weights[0].shape[0]
    count = block_count(tokens * top_k, experts, size)
    order, counts = _sort(choices, experts)
    ends = jnp.cumsum(-(-counts // size))  # of each expert's blocks
    starts, before = ends - (-(-counts // size)), jnp.cumsum(counts) - counts
    number = jnp.arange(count)
    owner = (number[:, None] >= ends[None]).sum(1).clip(max=experts - 1)
    place = (number - starts[owner])[:, None] * size + jnp.arange(size)[None]
    is_filled = place < counts[owner][:, None]  # [count, size]
    row = jnp.where(is_filled, before[owner][:, None] + place, 0)
    token = jnp.where(is_filled, order[row] // top_k, tokens)
    inner = x.at[token].get(mode="fill", fill_value=0)  # [count, size, width]

    def multiply(rows: Any, kernel: Any) -> Any:
        own = kernel.at[owner].get(indices_are_sorted=True, mode="clip")
        return jnp.einsum("bsi,bio->bso", rows, own)

    gate, up, down = weights
    h = activation(multiply(inner, gate)) * multiply(inner, up)
    y = multiply(h, down).reshape(-1, width)
    expert = choices.reshape(-1)[order]
    slot = starts[expert] * size + jnp.arange(len(order)) - before[expert]
    return _join(y[_unsort(order, slot)], shares)


def _by_ragged(x, choices, shares, weights, activation):
    gate, up, down = weights
    order, counts = _sort(choices, gate.shape[0])
    inner = x[order // choices.shape[1]]
    h = activation(lax.ragged_dot(inner, gate, counts))
    y = lax.ragged_dot(h * lax.ragged_dot(inner, up, counts), down, counts)
    return _join(y[_unsort(order, jnp.arange(len(order)))], shares)


def _sort(choices: Any, experts: int) -> tuple[Any, Any]:
    """The order in which choices of one expert are together, and how many those are."""
    flat = choices.reshape(-1)
    counts = (flat[:, None] == jnp.arange(experts)).sum(0, dtype=jnp.int32)
    return jnp.argsort(flat, stable=True), counts


def _unsort(order: Any, values: Any) -> Any:
    """Values in that order, in the order of the choices."""
    zeros = jnp.zeros(order.shape, jnp.int32)
    return zeros.at[order].set(values.astype(jnp.int32), unique_indices=True)


def _join(y: Any, shares: Any) -> Any:
    """The sum of each token's outputs, ``[tokens * top_k, width]``, by their shares."""
    wide = jnp.promote_types(y.dtype, jnp.float32)
    y = y.reshape(*shares.shape, -1).astype(wide)
    return (y * shares[..., None].astype(wide)).sum(1)
