"""Functions whose equal blocks are computed again for the gradient.

What goes into a block is kept, and nothing that it computes: memory for activations
grows by a block's inputs, instead of by all that its gradient reads. Or what its matrix
products, convolutions and attention compute is kept as well, and only what lies between
them is computed again, which costs little time.

Sources: Chen et al., *Training Deep Nets with Sublinear Memory Cost*, 2016; Korthikanti
et al., *Reducing Activation Recomputation in Large Transformer Models*, 2022.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Literal

from exburn.errors import ArgumentError
from exburn.runtime.blocks.forms import function_of, variables
from exburn.runtime.blocks.runs import LEAST_BLOCKS, BlockRun, find_runs
from exburn.runtime.sharding.current import is_spread

#: What ``remat_blocks`` keeps of a block: its inputs, on the device or on the host, or
#: also its products. Of positions that devices divide, always what attention gives.
KINDS = ("blocks", "activations", "offload")
_INPUT = "exburn_block_input"
_ATTENTION = "dot_product_attention_fwd"  # cuDNN's
ATTENTION_OF_PARTS = "exburn_ring_attention"
"""The name of what attention gives where devices divide the positions.

It is as large as what goes into a block, and is kept with that: of rows so long it is
most of the time to compute it again.
"""
_LEAST_TERMS = 128  # of a sum whose result is kept: shorter ones cost as little as adds


def remat_blocks(function: Callable, kind: str = "blocks") -> Callable[..., Any]:
    """A pure function whose equal blocks in a row are computed again for its gradient.

    It is traced once for each call, and computes the same.

    Args:
        kind: One of ``KINDS``.

    Example:
        >>> import jax.numpy as jnp
        >>> def deep(x, weights):
        ...     for w in weights:
        ...         x = jnp.tanh(x @ w)
        ...     return x
        >>> arguments = jnp.ones((2, 3)), [jnp.ones((3, 3))] * 8
        >>> code = jax.make_jaxpr(remat_blocks(deep))(*arguments).jaxpr
        >>> len(code.eqns)  # one for each block
        8
    """

    policy = _policy(kind)

    @functools.wraps(function)
    def run_again(*args: Any) -> Any:
        closed, specs = jax.make_jaxpr(function, return_shape=True)(*args)
        code = closed.jaxpr
        values: dict[Any, Any] = dict(zip(code.constvars, closed.consts, strict=True))
        values.update(zip(code.invars, jax.tree.leaves(args), strict=True))
        runs = find_runs(code, differentiable=False)
        if not runs:
            raise ArgumentError(
                "compile",
                f"remat needs equal blocks: {LEAST_BLOCKS} or more in a row, which the "
                "model has not",
                hint="model.remat('dense_*') computes single layers again.",
            )
        start = 0
        for run in runs:
            _run(code, start, run.start, values, None)
            entries = _entries(code.eqns, run)
            begins = range(run.start, run.stop, run.length)
            for block, begin in enumerate(begins):
                if is_spread():
                    _tie(run, block, entries[block], values)
                _run(code, begin, begin + run.length, values, (entries[block], policy))
            start = run.stop
        _run(code, start, len(code.eqns), values, None)
        outputs = [v.val if isinstance(v, Literal) else values[v] for v in code.outvars]
        return jax.tree.unflatten(jax.tree.structure(specs), outputs)

    return run_again


def _policy(kind: str) -> Any:
    """What of a block is kept, as a policy of ``jax.checkpoint``."""
    if kind == "blocks":
        return jax.checkpoint_policies.save_only_these_names(ATTENTION_OF_PARTS)
    if kind == "activations":
        return _keeps_products
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=[_INPUT, ATTENTION_OF_PARTS],
        offload_src="device",
        offload_dst="pinned_host",
    )


def _keeps_products(primitive: Any, *operands: Any, **options: Any) -> bool:
    """Results of convolutions, of attention, and of products that sum many terms.

    Products of adapters sum as many terms as their rank, and are added to another that
    is kept: to keep both would take twice the memory.
    """
    if primitive.name == "dot_general":
        (axes, _), _ = options["dimension_numbers"]
        return math.prod(operands[0].shape[axis] for axis in axes) >= _LEAST_TERMS
    name = primitive.name
    if name == "name":
        return options["name"] == ATTENTION_OF_PARTS
    return name == "conv_general_dilated" or name.startswith(_ATTENTION)


def _entries(equations: list[Any], run: BlockRun) -> list[set[Any]]:
    """For each block the variables that the block before hands on to it."""
    places = [carried.operands[0] for carried in run.carried.values()]
    return [
        {
            equations[run.start + block * run.length + number].invars[operand]
            for number, operand in places
        }
        for block in range(run.blocks)
    ]


def _tie(run: BlockRun, block: int, handed: set[Any], values: dict[Any, Any]) -> None:
    """Has a block's gradient wait for those of the weights of the block behind it.

    Where sums over devices are hidden behind other work, XLA computes the gradients of
    all weights last, and until then keeps what they read of every block.
    """
    behind = [s.values[block + 1] for s in run.stacked if block + 1 < run.blocks]
    known = [v for v in behind if not isinstance(v, Literal) and v in values]
    tied = list(dict.fromkeys((*handed, *known)))
    values.update(zip(tied, _together(*(values[v] for v in tied)), strict=True))


@jax.custom_jvp
def _together(*arrays: Any) -> tuple[Any, ...]:
    """The arrays, whose gradients are there all at once, or none of them is."""
    return arrays


def _together_jvp(arrays: Any, tangents: Any) -> Any:
    moved = [at for at, v in enumerate(tangents) if not isinstance(v, SymbolicZero)]
    barred = jax.lax.optimization_barrier([tangents[at] for at in moved])
    tangents = list(tangents)
    for at, tangent in zip(moved, barred, strict=True):
        tangents[at] = tangent
    return arrays, tuple(tangents)


_together.defjvp(_together_jvp, symbolic_zeros=True)


def _run(
    code: Any,
    start: int,
    stop: int,
    values: dict[Any, Any],
    block: tuple[set[Any], Any] | None,
) -> None:
    """Adds what some equations compute to the values.

    Args:
        block: If they are a block, what it is handed, and what is kept of it.
    """
    equations = code.eqns[start:stop]
    if not equations:
        return
    own = {v for equation in equations for v in equation.outvars}
    later = variables(v for equation in code.eqns[stop:] for v in equation.invars)
    needed = {*later, *variables(code.outvars)}
    outputs = [v for e in equations for v in e.outvars if v in needed]
    read = variables(v for equation in equations for v in equation.invars)
    inputs = [v for v in read if v not in own]
    call = function_of(inputs, equations, outputs)
    if block is not None:
        handed, policy = block
        plain = call

        def call(*arrays: Any) -> list[Any]:
            named = [
                checkpoint_name(array, _INPUT) if variable in handed else array
                for variable, array in zip(inputs, arrays, strict=True)
            ]
            return plain(*named)

        call = jax.checkpoint(call, policy=policy)
    results = call(*(values[v] for v in inputs))
    values.update(zip(outputs, results, strict=True))
