"""Gated networks of which each token takes a few, and the forms of their products.

All forms give the same; `choose_form` says which one is computed:

* ``"every"``: each network on all tokens, one after another, times the token's share.
* ``"blocks"``: the tokens of each network together, in blocks of equal size, each with
  a copy of its network's weights; the rest of a network's last block is zeros.
* ``"kernels"``: the same blocks without copies, by `expert_product`.
* ``"ragged"``: the tokens of each network together, by ``jax.lax.ragged_dot``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from exburn.core import forward_context
from exburn.layers.contract.divided_experts import Division, over_devices
from exburn.runtime.kernels import expert_product

# What it costs to copy a network's weights, in tokens that it computes instead; what
# it costs to read them once: one after another, or all by ``ragged_dot``.
# Measured by `benchmarks/experts.py`: on 2 cores of an EPYC in float32, and on an H200
# in bfloat16.
_COPY = {"cpu": 32, "gpu": 900}
_READ = {"cpu": 16, "gpu": 1000}
_READ_ALL = {"gpu": 250}
# Of a device's fair part of the tokens, what its blocks are made for.
_SLACK = 1.25


class Form(NamedTuple):
    """How the products are computed.

    Attributes:
        name: ``"every"``, ``"blocks"``, ``"kernels"`` or ``"ragged"``.
        block: Tokens of a block.
        rows: Tokens that blocks are made for at first, where a device may have fewer
            than all; 0 for all.
        in_fit: Of kernels: whether the step is one of ``fit`` that no user wrote.
    """

    name: str
    block: int = 0
    rows: int = 0
    in_fit: bool = False


def choose_form(
    tokens: Any,
    experts: int,
    top_k: int,
    platform: str,
    parts: int = 1,
    kernels: bool = False,
) -> Form:
    """The form that takes the least time.

    ``ragged_dot`` is one only on a TPU. Elsewhere XLA computes it as the product of
    all ``tokens * top_k`` rows with each expert: 2 to 12 times the time of ``"every"``
    on a processor, on a GPU the least where rows are few and their experts many.

    Args:
        tokens: How many there are; a symbol while they are not known.
        experts: How many a device has.
        parts: Devices that divide all experts, each of which has all tokens.
        kernels: Whether those of `expert_product` run.

    Example:
        >>> choose_form(1, 64, 8, "cpu")
        Form(name='blocks', block=1, rows=0, in_fit=False)
        >>> choose_form(16, 64, 8, "cpu").name, choose_form(16, 64, 8, "gpu").name
        ('every', 'ragged')
    """
    if platform == "tpu":
        return Form("ragged")
    if not isinstance(tokens, int):
        return Form("every")
    kind = "cpu" if platform == "cpu" else "gpu"
    rows = tokens * top_k
    few = rows if parts == 1 else min(rows, math.ceil(_SLACK * rows / parts))
    if kernels:
        return Form("kernels", expert_product.ROWS, few if few < rows else 0)
    sizes = [1 << power for power in range(rows.bit_length() + 1)]
    costs = [
        (block_count(few, experts, size) * (size + _COPY[kind]), size) for size in sizes
    ]
    cost, size = min(costs)
    every = experts * (tokens + _READ[kind])
    if kind in _READ_ALL and experts * (rows + _READ_ALL[kind]) < min(cost, every):
        return Form("ragged")
    if cost >= every:
        return Form("every")
    return Form("blocks", size, few if few < rows else 0)


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
    division: Division | None = None,
) -> jax.Array:
    """``Σ share · (activation(x gate) * x up) down`` over each token's experts.

    Args:
        x: ``[batch, time, width]``.
        choices: ``[batch, time, top_k]``: numbers of the token's experts, which differ.
        shares: The same of their shares.
        weights: ``gate`` and ``up``, ``[experts, width, units]``, and ``down``,
            ``[experts, units, width]``.
        form: By ``choose_form`` if None.
        division: The devices that divide tokens and experts; None for one device.

    Returns:
        ``[batch, time, width]``, in the dtype of ``x``.
    """
    if form is None:
        parts, tokens = 1, x.shape[0] * x.shape[1]
        if division is not None:
            parts, tokens = division.parts, division.token_count(tokens)
        top_k, shape = choices.shape[-1], weights[0].shape
        kernels = expert_product.fits(
            x.dtype, tokens * top_k, shape, division is not None
        )
        platform = jax.default_backend()
        form = choose_form(tokens, shape[0] // parts, top_k, platform, parts, kernels)
        if form.name == "kernels" and (ctx := forward_context.current()):
            form = form._replace(in_fit=ctx.in_fit)
    run: Callable = functools.partial(
        exburn_routed_experts, activation=activation, form=form, division=division
    )
    return run(x, choices, shares, *weights)


# Not inlined: by its name ``batch_independence`` knows it, which sorts tokens, and
# gives each what it would have alone.
@functools.partial(jax.jit, static_argnames=("activation", "form", "division"))
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
    division: Division | None = None,
) -> jax.Array:
    """``route_experts`` on one device, or on those of a division."""
    run = functools.partial(_route, activation=activation, form=form)
    if division is not None:
        run = over_devices(run, division)
    return run(x, choices, shares, gate, up, down)


def _route(x, choices, shares, gate, up, down, *, activation, form):
    """The sum over the experts that are here; other numbers are none's."""
    rows = x.reshape(-1, x.shape[-1])
    choices, shares = (v.reshape(rows.shape[0], -1) for v in (choices, shares))
    weights = gate, up, down
    if form.name == "every":
        y = _by_every(rows, choices, shares, weights, activation)
    elif form.name in ("blocks", "kernels"):
        y = _by_blocks(rows, choices, shares, weights, activation, form)
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


def _by_blocks(x, choices, shares, weights, activation, form):
    size, experts, rows = form.block, weights[0].shape[0], choices.size
    order, counts = _sort(choices, experts)
    few, all_ = (block_count(n, experts, size) for n in (form.rows or rows, rows))

    def run(first: int, count: int) -> Callable[..., Any]:
        return functools.partial(
            _multiply_blocks, activation=activation, form=form, first=first, count=count
        )

    arguments = x, choices, shares, weights, order, counts
    y = run(0, few)(*arguments)
    if few == all_:
        return y
    needed = (-(-counts // size)).sum()
    # Few batches need these: what they would keep for their gradients is not kept.
    rest = jax.checkpoint(_by_name(run(few, all_ - few)))
    return y + lax.cond(
        needed > few, rest, lambda *_: jnp.zeros(y.shape, y.dtype), *arguments
    )


def _by_name(run: Callable) -> Callable:
    """A program that ``cost_model`` leaves out by its name."""

    @jax.jit
    def exburn_more_blocks(*arguments: Any) -> Any:
        return run(*arguments)

    return exburn_more_blocks


def _multiply_blocks(
    x, choices, shares, weights, order, counts, *, activation, form, first, count
):
    """What the blocks from a first one on give; other tokens' experts give nothing."""
    (tokens, width), top_k, size = x.shape, choices.shape[1], form.block
    ends = jnp.cumsum(-(-counts // size))  # of each expert's blocks
    starts, before = ends - (-(-counts // size)), jnp.cumsum(counts) - counts
    number = first + jnp.arange(count)
    owner = (number[:, None] >= ends[None]).sum(1, dtype=jnp.int32)
    place = (number - starts[owner])[:, None] * size + jnp.arange(size)[None]
    is_filled = place < counts[owner][:, None]  # [count, size]
    row = jnp.where(is_filled, before[owner][:, None] + place, 0)
    token = jnp.where(is_filled, order[row] // top_k, tokens)
    inner = x.at[token].get(mode="fill", fill_value=0)  # [count, size, width]
    product: Callable = _product_of_copies
    if form.name == "kernels":
        product = functools.partial(expert_product.product, in_fit=form.in_fit)
    gate, up, down = weights
    h = activation(product(inner, gate, owner)) * product(inner, up, owner)
    y = product(h, down, owner).reshape(-1, width)
    expert = choices.reshape(-1)[order].clip(max=len(counts) - 1)
    slot = (starts[expert] - first) * size + jnp.arange(len(order)) - before[expert]
    slot = _unsort(order, slot)
    is_here = ((slot >= 0) & (slot < len(y))).reshape(choices.shape)
    is_here &= choices < len(counts)
    return _join(y[slot.clip(0, len(y) - 1)], shares, is_here)


def _product_of_copies(rows, kernels, owners):
    own = kernels.at[owners].get(indices_are_sorted=True, mode="clip")
    return jnp.einsum("bsi,bio->bso", rows, own)


def _by_ragged(x, choices, shares, weights, activation):
    gate, up, down = weights
    order, counts = _sort(choices, gate.shape[0])
    inner = x[order // choices.shape[1]]
    h = activation(lax.ragged_dot(inner, gate, counts))
    y = lax.ragged_dot(h * lax.ragged_dot(inner, up, counts), down, counts)
    y = y[_unsort(order, jnp.arange(len(order)))]
    return _join(y, shares, choices < gate.shape[0])


def _sort(choices: Any, experts: int) -> tuple[Any, Any]:
    """The order in which choices of one expert are together, and how many those are."""
    flat = choices.reshape(-1)
    counts = (flat[:, None] == jnp.arange(experts)).sum(0, dtype=jnp.int32)
    return jnp.argsort(flat, stable=True), counts


def _unsort(order: Any, values: Any) -> Any:
    """Values in that order, in the order of the choices."""
    zeros = jnp.zeros(order.shape, jnp.int32)
    return zeros.at[order].set(values.astype(jnp.int32), unique_indices=True)


def _join(y: Any, shares: Any, is_here: Any) -> Any:
    """The sum of each token's outputs, ``[tokens * top_k, width]``, by their shares."""
    wide = jnp.promote_types(y.dtype, jnp.float32)
    y = y.reshape(*shares.shape, -1).astype(wide)
    y = jnp.where(is_here[..., None], y, 0)
    return (y * shares[..., None].astype(wide)).sum(1)
