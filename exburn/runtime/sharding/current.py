"""The distribution in force: the one set for all, or the one of a model at work."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import PartitionSpec

from exburn.errors import LayoutError
from exburn.errors.boundary import api_boundary

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from exburn.runtime.sharding.strategies import Distribution

_for_all: list[Any] = [None]
_of_model: ContextVar[tuple | None] = ContextVar("exburn_distribution", default=None)
_by_hand: ContextVar[bool] = ContextVar("exburn_spread_by_hand", default=False)


@api_boundary
def set_distribution(value: Distribution | None) -> None:
    """Sets the distribution of all models that have none of their own.

    Args:
        value: A ``Distribution``; ``None`` for one device, as at the start.

    Raises:
        LayoutError: It is none.

    Example:
        >>> set_distribution(None)
        >>> distribution() is None
        True
    """
    if value is not None and not hasattr(value, "weight_spec"):
        raise LayoutError(
            "set_distribution", f"value must be a Distribution, received {value!r}"
        )
    _for_all[0] = value


@api_boundary
def distribution() -> Any:
    """The distribution that was set for all models; ``None`` if there is none.

    Example:
        >>> set_distribution(None)
        >>> print(distribution())
        None
    """
    return _for_all[0]


@contextlib.contextmanager
def in_force(value: Distribution | None) -> Iterator[None]:
    """In the block, this thread works for a model with this distribution.

    Args:
        value: The distribution; ``None`` for one device, whatever is set for all.
    """
    token = _of_model.set((value,))
    try:
        yield
    finally:
        _of_model.reset(token)


def active() -> Any:
    """The distribution in force in this thread; ``None`` for one device."""
    own = _of_model.get()
    return _for_all[0] if own is None else own[0]


@contextlib.contextmanager
def spread_by_hand() -> Iterator[None]:
    """In the block, a program is traced for arrays that a user has put on devices."""
    token = _by_hand.set(True)
    try:
        yield
    finally:
        _by_hand.reset(token)


def divides_features() -> bool:
    """Whether weights in what is traced now may be divided by their features."""
    distribution = active()
    if distribution is None:
        return False
    return row_parts() < distribution.mesh.size


def is_spread() -> bool:
    """Whether what is traced now runs on several devices."""
    distribution = active()
    return _by_hand.get() or (distribution is not None and distribution.mesh.size > 1)


def row_parts() -> int:
    """Parts that the batch of what is traced now, and its positions, make."""
    distribution = active()
    if distribution is None:
        return 1
    return distribution.num_model_replicas * distribution.sequence_parts


def row_division() -> tuple[Mesh, tuple[str, ...]] | None:
    """The mesh that what is traced now runs on, if all of it divides the batch.

    Returns:
        The mesh, and the axes that divide the batch and its positions; ``None`` on one
        device, where axes divide something else, and where a user has put arrays on
        devices.
    """
    distribution = active()
    if _by_hand.get() or divides_features() or row_parts() == 1:
        return None
    return distribution.mesh, _row_axes(distribution)


def sequence_division() -> tuple[Mesh, tuple[str, ...], str, tuple[str, ...]] | None:
    """The mesh that what is traced now runs on, if it divides positions.

    Returns:
        The mesh, the axes that divide the batch, the one that divides positions, and
        all others; ``None`` where none does, and where a user has put arrays on
        devices.
    """
    distribution = active()
    if _by_hand.get() or distribution is None or distribution.sequence_parts == 1:
        return None
    mesh, rows = distribution.mesh, _row_axes(distribution)
    others = tuple(name for name in mesh.axis_names if name not in rows)
    return mesh, distribution.batch_axes, distribution.sequence_axis, others


def _row_axes(distribution: Distribution) -> tuple[str, ...]:
    if distribution.sequence_parts == 1:
        return distribution.batch_axes
    return (*distribution.batch_axes, distribution.sequence_axis)


def feature_division() -> tuple[Mesh, tuple[str, ...], tuple[str, ...]] | None:
    """The mesh that what is traced now runs on, if a part of it divides features.

    Returns:
        The mesh, the axes that divide the batch and its positions, perhaps none, and
        all others; ``None`` where there are no others, and where a user has put
        arrays on devices.
    """
    distribution = active()
    if _by_hand.get() or distribution is None or not divides_features():
        return None
    mesh, batch = distribution.mesh, _row_axes(distribution)
    return mesh, batch, tuple(name for name in mesh.axis_names if name not in batch)


def feature_parts() -> int:
    """Parts that features of what is traced now may be divided into."""
    division = feature_division()
    if division is None:
        return 1
    mesh, _, across = division
    return math.prod(mesh.shape[name] for name in across)


def to_all(value: Any) -> Any:
    """An array in a program, whole on every device of the distribution in force."""
    distribution = active()
    if distribution is None:
        return value
    return jax.lax.with_sharding_constraint(value, distribution.sharding())


def whole_rows(value: Any) -> Any:
    """An array in a program, each of whose rows is whole on the devices that have it.

    Where a mesh divides features, XLA would hand on a division that suits one
    operation, as of columns of a table, to all that follow it.

    Args:
        value: ``[batch, …]``
    """
    if (division := feature_division()) is None:
        return value
    _, batch, _ = division
    distribution, spec = active(), PartitionSpec(batch or None)
    if distribution.sequence_parts > 1:
        if value.ndim < 3:
            return value
        spec = distribution.position_spec(value.shape)
    elif value.ndim < 2 or value.shape[0] % row_parts():
        return value
    sharding = distribution.sharding(spec)
    return jax.lax.with_sharding_constraint(value, sharding)


def trace_key() -> tuple:
    """A key of what a trace depends on here: equal where the trace is the same."""
    spread = is_spread(), row_parts(), row_division(), feature_division()
    return *spread, sequence_division()
