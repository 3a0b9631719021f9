"""Where arrays lie: on different devices no program can take them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec

from exburn.errors import ArgumentError


def refuse_apart(op: str, error: BaseException, trees: dict[str, Any]) -> None:
    """Says which arrays lie where, if that is what JAX has raised an error for.

    Args:
        error: What was raised.
        trees: Arrays, in any structure, by the names that the user knows them by.

    Raises:
        ArgumentError: The arrays lie on different devices.
    """
    if not _speaks_of_devices(error):
        return
    devices = {name: _places(name, tree) for name, tree in trees.items()}
    if len({place for places in devices.values() for place in places.values()}) < 2:
        return
    details: dict[str, str] = {}
    for name, places in devices.items():
        one = len(set(places.values())) == 1
        details |= {name: next(iter(places.values()))} if one else places
    raise ArgumentError(
        op,
        "the arrays of one call must lie on one device",
        details,
        hint="jax.device_put(array, device) moves an array, model.to_device(device) a "
        "model; NumPy arrays go where the model is.",
    ) from error


def together(tree: Any, beside: Any = (), *, may_alias: bool = False) -> Any:
    """The arrays of a tree, all of them bound to devices if one array is.

    A program gives bound arrays back where one of its arguments is bound, and JAX
    compiles another one for those: as many as there are mixtures. Where arrays lie
    apart, all stay as they are: no program takes them.

    Args:
        tree: Arrays.
        beside: Arrays that programs are called with, too.
        may_alias: Whether arrays that are in place already may share their memory with
            what is returned: it is not to be donated.

    Example:
        >>> device = jax.devices()[0]
        >>> together([jax.device_put(1.0, device), 2.0])[1].committed
        True
    """
    leaves, structure = jax.tree.flatten(tree)
    bound = [v.sharding for v in [*leaves, *jax.tree.leaves(beside)] if is_bound(v)]
    if not bound or any(s.device_set != bound[0].device_set for s in bound):
        return tree
    where: Any = bound[0]
    if isinstance(where, NamedSharding):
        where = NamedSharding(where.mesh, PartitionSpec())
    elif len(where.device_set) > 1:
        return tree

    # NumPy's memory may be used again before it was sent.
    free = {
        i: np.array(leaf) if isinstance(leaf, np.ndarray) else leaf
        for i, leaf in enumerate(leaves)
        if not is_bound(leaf)
    }
    for i, leaf in jax.device_put(free, where, may_alias=may_alias).items():
        leaves[i] = leaf
    return structure.unflatten(leaves)


def bound_to(tree: Any) -> str:
    """The devices that the first bound array of a tree is bound to; "" if none is.

    Example:
        >>> bound_to([2.0, jax.device_put(1.0, jax.devices("cpu")[0])])
        'cpu:0'
    """
    for leaf in jax.tree.leaves(tree):
        if is_bound(leaf):
            return _devices(leaf)
    return ""


def is_bound(leaf: Any) -> bool:
    """Whether someone has put the array on its devices; NumPy's and tracers are not.

    Example:
        >>> device = jax.devices()[0]
        >>> is_bound(jax.device_put(1.0)), is_bound(jax.device_put(1.0, device))
        (False, True)
    """
    return not isinstance(leaf, Tracer) and getattr(leaf, "committed", False)


def _devices(array: jax.Array) -> str:
    return ", ".join(sorted(map(str, array.devices())))


def _speaks_of_devices(error: BaseException | None) -> bool:
    """Whether an error is JAX's, or was raised while that was handled."""
    while error is not None:
        if "incompatible devices" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _places(name: str, tree: Any) -> dict[str, str]:
    """Devices of the arrays that were put there: all others go where these are."""
    places = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if is_bound(leaf) and not leaf.is_deleted():
            places[name + jax.tree_util.keystr(path)] = _devices(leaf)
    return places
