"""Arrays on different devices, which no program can take."""

from __future__ import annotations

from typing import Any

import jax
from jax.core import Tracer

from exburn.errors import ArgumentError

__all__ = ["refuse_apart"]


def refuse_apart(op: str, error: BaseException, given: dict[str, Any]) -> None:
    """Says which arrays lie where, if that is what JAX has raised an error for.

    Args:
        op: The operation named in the error.
        error: What was raised.
        given: Arrays, in any structure, by the names that the user knows them by.

    Raises:
        ArgumentError: The arrays lie on different devices.
    """
    if not _speaks_of_devices(error):
        return
    found = {name: _places(name, tree) for name, tree in given.items()}
    if len({place for places in found.values() for place in places.values()}) < 2:
        return
    details: dict[str, str] = {}
    for name, places in found.items():
        one = len(set(places.values())) == 1
        details |= {name: next(iter(places.values()))} if one else places
    raise ArgumentError(
        op,
        "the arrays of one call must lie on one device",
        details,
        hint="jax.device_put(array, device) moves an array, model.to_device(device) a "
        "model; NumPy arrays go where the model is.",
    ) from error


def _speaks_of_devices(error: BaseException | None) -> bool:
    """Whether it is JAX's error, or was raised while that was handled."""
    while error is not None:
        if "incompatible devices" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _places(name: str, tree: Any) -> dict[str, str]:
    """Devices of the arrays that were put there: all others go where these are."""
    found = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if not isinstance(leaf, jax.Array) or isinstance(leaf, Tracer):
            continue
        if leaf.committed and not leaf.is_deleted():
            devices = ", ".join(sorted(map(str, leaf.devices())))
            found[name + jax.tree_util.keystr(path)] = devices
    return found
