"""Many models as one: their state with a leading axis, and the steps over it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.training.numbers import as_array
from exburn.training.state import TrainState, seed_data


@dataclasses.dataclass(frozen=True)
class Lanes:
    """Makes of a step of one model that of many; ``Steps`` has one.

    A lane whose loss is no finite number any more keeps the weights that it had before
    that step, and its total of the loss says so: one that begins an epoch with such a
    total stays as it is. Lanes compute nothing together, so the others do not notice.
    What its optimizer keeps is lost: to select that, too, took two cores a third more
    time, since XLA computes the update twice then, of slots that it has to copy.

    Attributes:
        own_rows: Whether each lane has rows of its own in a step.
        in_turn: Whether there is one lane, which runs as a model without lanes does.
        divide: Divides an array's axis of lanes over devices, in a program; ``None``
            for one device.
    """

    own_rows: bool = False
    in_turn: bool = False
    divide: Callable[[Any, int], Any] | None = None

    def over(self, function: Callable, arguments: Sequence[str]) -> Callable:
        """A function of one model as that of all lanes: see ``Steps._over_lanes``."""
        if arguments[0] == "state":
            function = _freezing(function)
        axes: dict[str, Any] = {
            "state": 0,
            "arrays": 0,
            "shared": None,
            "rows": (0, 0, None),
            "groups": (1, 1, None),
        }
        chosen = [axes[name] for name in arguments]
        if self.in_turn:
            call = _over_one(function, chosen)
        else:
            call = jax.vmap(function, in_axes=tuple(chosen))
        if self.own_rows:
            return call
        return _repeating_rows(call, arguments, self.divide or _whole)


def _whole(value: Any, axis: int) -> Any:
    return value


def _repeating_rows(call: Callable, arguments: Sequence[str], divide: Any) -> Callable:
    """A function of lanes with rows of their own, for rows that are those of all.

    A product of one batch with the weights of many lanes would be one of matrices,
    whose result and whose weights XLA turns around in memory: it took three times as
    long on two cores as the product of each lane by itself.
    """
    axes = {"rows": 0, "groups": 1}

    def repeat_batch(*args: Any) -> Any:
        count = jax.tree.leaves(args[0])[0].shape[0]

        def repeat_at(leaf: Any, axis: int) -> Any:
            shape = (*leaf.shape[:axis], count, *leaf.shape[axis:])
            return jnp.broadcast_to(jnp.expand_dims(leaf, axis), shape)

        def one(name: str, arg: Any) -> Any:
            if name not in axes:
                return arg
            source, counts, number = arg
            axis = axes[name]
            rows = jax.tree.map(lambda v: repeat_at(v, axis), (source, counts))
            rows = jax.lax.optimization_barrier(rows)
            return *jax.tree.map(lambda v: divide(v, axis), rows), number

        pairs = zip(arguments, args, strict=True)
        return call(*(one(name, arg) for name, arg in pairs))

    return repeat_batch


def _freezing(step: Callable) -> Callable:
    """A step that leaves the weights as they are where the loss is not finite."""

    def guard(state: TrainState, *rest: Any) -> TrainState:
        new = step(state, *rest)
        if (total := _total(new.metrics)) is None:
            return new
        alive = jnp.isfinite(total)
        fields = {
            name: jax.tree.map(
                lambda n, o: jnp.where(alive, n, o),
                getattr(new, name),
                getattr(state, name),
            )
            for name in ("params", "frozen", "others", "step")
        }
        return new.replace(**fields)

    return guard


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
def repeat(tree: Any, lanes: int) -> Any:
    """A tree with a leading axis of equal lanes, in memory of its own."""

    def one(leaf: Any) -> Any:
        leaf = jnp.asarray(leaf)
        return jnp.broadcast_to(leaf[None], (lanes, *leaf.shape))

    return jax.tree.map(one, tree)


def join(
    states: Sequence[Any],
    positions: Sequence[Sequence[int]],
    order: Sequence[int],
) -> Any:
    """Lanes of several states as one state."""
    at = tuple(np.asarray(one, np.int32) for one in positions)
    leaves = jax.tree.leaves(tuple(states))
    if any(isinstance(leaf, np.ndarray) for leaf in leaves):  # they stay on the host
        return _join_states(tuple(states), at, np.asarray(order))
    return _join(tuple(states), at, np.asarray(order, np.int32))


def _join_states(trees: tuple, positions: tuple, order: Any) -> Any:
    def join_leaves(*leaves: Any) -> Any:
        numpy: Any = np if isinstance(leaves[0], np.ndarray) else jnp
        taken = [leaf[at] for leaf, at in zip(leaves, positions, strict=True)]
        return numpy.concatenate(taken)[order]

    return jax.tree.map(join_leaves, *trees)


_join = jax.jit(_join_states)  # one program: a call for each array compiles as many


def lane(tree: Any, position: int) -> Any:
    """One lane, without the axis."""
    return jax.tree.map(lambda v: v[position], tree)


def to_host(leaf: Any) -> Any:
    """An array in host memory; keys have no form there, and stay where they are."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return leaf if is_key else jax.device_get(leaf)


def on_device(values: Any, weak: bool) -> jax.Array:
    """An array on the device, as weakly typed as it was there."""
    if weak:  # the numbers of lanes
        return jnp.stack([jnp.asarray(value) for value in values.tolist()])
    return jax.device_put(values)


def seeds_data(seeds: Sequence[int]) -> np.ndarray:
    """Key data of the lanes' seeds: ``[lanes, 2]``."""
    return np.stack([seed_data(seed) for seed in seeds])


def numbers_array(values: Sequence[Any]) -> jax.Array:
    """A number of each lane; weakly typed, as the numbers that they stand for."""
    return jnp.stack([as_array(value) for value in values])


def fresh_totals(totals: Any, frozen: Sequence[bool]) -> Any:
    """Totals before an epoch; those of frozen lanes keep them frozen."""
    repeated_totals = repeat(totals, len(frozen))
    if not any(frozen) or _total(repeated_totals) is None:
        return repeated_totals
    loss = repeated_totals["loss"]
    total = jnp.where(np.asarray(frozen), jnp.nan, loss["total"])
    return {**repeated_totals, "loss": {**loss, "total": total}}
