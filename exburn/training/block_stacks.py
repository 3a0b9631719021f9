"""Parameters of equal blocks as one array each, while a run trains."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from exburn.config import is_block_loops_enabled
from exburn.optimizers import (
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    Lion,
    Nadam,
    RMSprop,
)
from exburn.runtime.blocks.runs import BlockRun
from exburn.runtime.cost_model import count, inner_jaxprs
from exburn.training.state import TrainState

# Their rules compute each entry of a parameter by itself. Others' subclasses may not.
_ELEMENTWISE = (SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, Lion, Nadam, RMSprop)
_LEAST_STEPS = 4  # of a chunk, that is worth putting parameters together
LEAST_OPERATIONS = 2000
"""That a program must have less with a loop: below, a loop starts no sooner."""
LEAST_OF_BLOCK, ELEMENTS = 60, (500_000, 2_000_000)
"""Operations of a block, and array elements that its pass forward writes.

A turn of the loop takes longer than less does; what is kept of more leaves the caches.
"""
_LOOPS = {"scan", "while"}


@dataclasses.dataclass(frozen=True)
class BlockStacks:
    """Parameters that equal blocks have, each of which is an array's row in a run.

    A program of few large arrays compiles sooner: each array that it updates or
    returns is a kernel. They are put together and taken apart on the host.

    Attributes:
        columns: Names of parameters, of which each block has one, in their order.

    Example:
        >>> stacks = BlockStacks((("a/w", "b/w"),))
        >>> rows = stacks.rows({"a/w": np.ones((2, 3)), "head": np.zeros(1)})
        >>> {name: row.shape for name, row in sorted(rows.items())}
        {'a/w': (3,), 'b/w': (3,), 'head': (1,)}
    """

    columns: tuple[tuple[str, ...], ...]

    def pack(self, state: TrainState) -> TrainState:
        """A state of arrays or specs whose parameters are put together."""
        params, opt_state = self._map((state.params, state.opt_state), self._join)
        return state.replace(params=params, opt_state=opt_state, stacks=self)

    def unpack(self, state: TrainState) -> TrainState:
        """The state that ``pack`` got."""
        params, opt_state = self._map((state.params, state.opt_state), self._separate)
        return state.replace(params=params, opt_state=opt_state, stacks=None)

    def parts(self, state: TrainState) -> list[Any]:
        """The arrays of a state that ``pack`` copies."""
        arrays: list[Any] = []

        def gather(named: dict[str, Any]) -> dict[str, Any]:
            arrays.extend(named[name] for column in self.columns for name in column)
            return named

        self._map((state.params, state.opt_state), gather)
        return jax.tree.leaves(arrays)

    def rows(self, params: dict[str, Any]) -> dict[str, Any]:
        """Parameters by their names, of those that are put together, in a trace."""
        return self._by_name(params, _row)

    def _map(self, tree: Any, change: Callable[[dict], dict]) -> Any:
        """A tree whose dicts of parameters, or of what belongs to them, are changed."""
        first = self.columns[0][0]

        def is_of_parameters(node: Any) -> bool:
            return isinstance(node, dict) and first in node

        return jax.tree.map(
            lambda node: change(node) if is_of_parameters(node) else node,
            tree,
            is_leaf=is_of_parameters,
        )

    def _join(self, named: dict[str, Any]) -> dict[str, Any]:
        joined = dict(named)
        for column in self.columns:
            parts = [joined.pop(name) for name in column]
            joined[column[0]] = jax.tree.map(_stack, *parts)
        return joined

    def _separate(self, named: dict[str, Any]) -> dict[str, Any]:
        return self._by_name(named, _separate)

    def _by_name(
        self, named: dict[str, Any], row: Callable[[Any, int], Any]
    ) -> dict[str, Any]:
        separate = dict(named)
        for column in self.columns:
            whole = separate.pop(column[0])
            for number, name in enumerate(column):
                separate[name] = jax.tree.map(lambda v, n=number: row(v, n), whole)
        return separate


def are_wanted() -> bool:
    """Whether equal blocks are looked for: loops start sooner, but their steps last."""
    return is_block_loops_enabled() and jax.default_backend() == "cpu"


def find_stacks(blocks: tuple, split: Any, optimizer: Any) -> BlockStacks | None:
    """How the parameters of equal blocks are put together, if they can be.

    Args:
        blocks: Names of parameters of which each block has one: ``Forward.blocks``.
        split: The module.
        optimizer: It must compute each entry of a parameter by itself.
    """
    weights = split.variables
    alone = (
        type(optimizer) in _ELEMENTWISE
        and optimizer.accumulate == 1
        and optimizer.clipnorm is None
        and optimizer.state_bits == 32
        and not optimizer.weight_decay_exclusions
    )
    if not are_wanted() or not alone or split.constraints or split.masking.pairs:
        return None
    real = [
        column
        for column in blocks
        if not any(np.iscomplexobj(weights[name].get_raw_value()) for name in column)
    ]
    return BlockStacks(tuple(real)) if real else None


def is_worth_packing(data: Any, index: Any) -> bool:
    """Whether a chunk has so many steps that putting parameters together pays."""
    sources = (
        [index] if index is not None else data if isinstance(data, list) else [data]
    )
    return sum(jax.tree.leaves(one)[0].shape[0] for one in sources) >= _LEAST_STEPS


def pays(code: Any, run: BlockRun) -> bool:
    """Whether blocks shall be a loop; see ``docs/decisions/equal_blocks.md``.

    Not of convolutions, which XLA computes slowly in a loop on a CPU, nor of loops.
    """
    small = run.gain < LEAST_OPERATIONS or run.operations < LEAST_OF_BLOCK
    if small:
        return False
    block = code.replace(eqns=code.eqns[run.start : run.start + run.length])
    cost, (least, most) = count(block), ELEMENTS
    suits = least <= cost.elements <= most and not cost.convolutions
    return suits and not _has_loop(block)


def _has_loop(code: Any) -> bool:
    return any(
        equation.primitive.name in _LOOPS or any(map(_has_loop, inner))
        for equation in code.eqns
        for inner in [list(inner_jaxprs(equation.params))]
    )


def _stack(*parts: Any) -> Any:
    """Arrays of the host's memory along a new first axis, or specs of them."""
    first = parts[0]
    shape = (len(parts), *first.shape)
    if isinstance(first, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(shape, first.dtype)
    whole = np.stack([np.asarray(part) for part in parts])
    place = first.sharding if first.committed else None
    return jax.device_put(whole, place)


def _separate(whole: Any, number: int) -> Any:
    """A row of an array in the host's memory, or its spec."""
    if isinstance(whole, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(whole.shape[1:], whole.dtype)
    place = whole.sharding if whole.committed else None
    return jax.device_put(np.asarray(whole)[number].copy(), place)


def _row(whole: Any, number: int) -> Any:
    return jax.lax.index_in_dim(whole, number, 0, keepdims=False)
