"""Many models as one: their state with a leading axis, and the steps over it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.training.state import TrainState, seed_data


@dataclasses.dataclass(frozen=True)
class Lanes:
    """Makes of a step of one model that of many; ``Steps`` has one.

    A lane whose loss is no finite number any more keeps the state that it had before
    that step, and its total of the loss says so: one that begins an epoch with such a
    total stays as it is. Lanes compute nothing together, so the others do not notice.

    Attributes:
        own_rows: Whether each lane has rows of its own in a step.
        in_turn: Whether there is one lane, which runs as a model without lanes does.
    """

    own_rows: bool = False
    in_turn: bool = False

    def over(self, function: Callable, arguments: Sequence[str]) -> Callable:
        """A function of one model as that of all lanes: see ``Steps._over_lanes``."""
        if arguments[0] == "state":
            function = _freezing(function)
        own = self.own_rows
        axes: dict[str, Any] = {
            "state": 0,
            "arrays": 0,
            "shared": None,
            "rows": (0, 0, None) if own else None,
            "groups": (1, 1, None) if own else None,
        }
        if self.in_turn:
            return _over_one(function, [axes[name] for name in arguments])
        return jax.vmap(function, in_axes=tuple(axes[name] for name in arguments))


def _freezing(step: Callable) -> Callable:
    """A step that leaves the state as it is where the loss is no finite number."""

    def guarded(state: TrainState, *rest: Any) -> TrainState:
        new = step(state, *rest)
        if (total := _total(new.metrics)) is None:
            return new
        alive, metrics = jnp.isfinite(total), new.metrics
        new, old = new.replace(metrics=None), state.replace(metrics=None)
        kept = jax.tree.map(lambda n, o: jnp.where(alive, n, o), new, old)
        return kept.replace(metrics=metrics)

    return guarded


def _total(totals: Any) -> Any:
    """The sum of the losses of an epoch; ``None`` if a step of its own has none."""
    loss = totals.get("loss") if isinstance(totals, Mapping) else None
    return loss.get("total") if isinstance(loss, Mapping) else None


def _over_one(function: Callable, axes: list[Any]) -> Callable:
    def call(*args: Any) -> Any:
        one = [_take_first(arg, axis) for arg, axis in zip(args, axes, strict=True)]
        return jax.tree.map(lambda v: jnp.expand_dims(v, 0), function(*one))

    return call


def _take_first(tree: Any, axis: Any) -> Any:
    if axis is None:
        return tree
    if isinstance(axis, tuple):
        return tuple(_take_first(t, a) for t, a in zip(tree, axis, strict=True))
    return jax.tree.map(lambda v: jax.lax.index_in_dim(v, 0, axis, False), tree)


# ---------------------------------------------------------------------- states
def stack(trees: Sequence[Any]) -> Any:
    """Trees of equal shapes as one with a leading axis of lanes."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def repeat(tree: Any, lanes: int) -> Any:
    """A tree with a leading axis of equal lanes, in memory of its own."""

    def one(leaf: Any) -> Any:
        leaf = jnp.asarray(leaf)
        return jnp.repeat(leaf[None], lanes, 0, total_repeat_length=lanes)

    return jax.tree.map(one, tree)


def gather(tree: Any, positions: Sequence[int]) -> Any:
    """The lanes at some positions, in this order; maybe one several times."""
    return _take(tree, np.asarray(positions, np.int32))


@jax.jit
def _take(tree: Any, positions: Any) -> Any:
    return jax.tree.map(lambda v: v[positions], tree)


def scatter(tree: Any, positions: Sequence[int], lanes: Any) -> Any:
    """The tree with other lanes at some positions."""
    return _put(tree, np.asarray(positions, np.int32), lanes)


@jax.jit
def _put(tree: Any, positions: Any, lanes: Any) -> Any:
    return jax.tree.map(lambda v, new: v.at[positions].set(new), tree, lanes)


def lane(tree: Any, position: int) -> Any:
    """One lane, without the axis."""
    return jax.tree.map(lambda v: v[position], tree)


def seeds_data(seeds: Sequence[int]) -> np.ndarray:
    """Key data of the lanes' seeds: ``[lanes, 2]``."""
    return np.stack([seed_data(seed) for seed in seeds])


def numbers_array(values: Sequence[float]) -> jax.Array:
    """A number of each lane; weakly typed, as the numbers that they stand for."""
    return jnp.stack([jnp.asarray(float(value)) for value in values])


def fresh_totals(totals: Any, frozen: Sequence[bool]) -> Any:
    """Totals before an epoch; those of frozen lanes keep them frozen.

    Args:
        totals: Of one model, on the host.
        frozen: Which lanes are.
    """
    made = repeat(totals, len(frozen))
    if not any(frozen) or _total(made) is None:
        return made
    loss = made["loss"]
    total = jnp.where(np.asarray(frozen), jnp.nan, loss["total"])
    return {**made, "loss": {**loss, "total": total}}
