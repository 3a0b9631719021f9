"""What the options of a serving mean."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import jax

from exburn.errors import ArgumentError
from exburn.models.arguments import positive
from exburn.runtime.sharding.strategies import Distribution, make_distribution
from exburn.serving.place import DevicePlace, MeshPlace

DEFAULT = "default"  # the batch key of a serving that was given none

_UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_PATTERN = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(us|µs|ms|s|min)\s*")


def seconds(op: str, name: str, value: Any, *, most: float = math.inf) -> float:
    """A duration in seconds.

    Args:
        op: The operation named in errors.
        name: The argument named in errors.
        value: ``"50 ms"``, a ``datetime.timedelta``, or a number of seconds.
        most: Longest that a bare number may be: more was meant in another unit.

    Raises:
        ArgumentError: It is no duration, negative, or a number above ``most``.

    Example:
        >>> import datetime
        >>> seconds("f", "wait", "50 ms"), seconds("f", "wait", 0.05)
        (0.05, 0.05)
        >>> seconds("f", "wait", datetime.timedelta(milliseconds=50))
        0.05
    """
    match = _PATTERN.fullmatch(value) if isinstance(value, str) else None
    if match:
        return float(match[1]) * _UNITS[match[2]]
    if isinstance(value, datetime.timedelta):
        result = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        result = float(value)
        if result > most:
            raise ArgumentError(
                op,
                f"{name} as a number is in seconds, at most {most:g} of them, "
                f"received {value!r}",
                hint=f'With its unit: {name}="{value:g} ms", or "{value:g} s".',
            )
    else:
        result = math.nan
    if not result >= 0:
        raise ArgumentError(
            op,
            f"{name} must be a duration ≥ 0, received {value!r}",
            hint=f'{name}="50 ms", a number of seconds, or a datetime.timedelta.',
        )
    return result


def examples_of(example: Any, batch_keys: Mapping | None) -> dict[Hashable, Any]:
    """An example of the input, or ``None``, for each batch key."""
    if batch_keys is None:
        return {DEFAULT: example}
    if example is not None or not isinstance(batch_keys, Mapping) or not batch_keys:
        raise ArgumentError(
            "Serving",
            "batch_keys must be a dict {key: example}, instead of example",
            {"received": type(batch_keys).__name__},
        )
    return dict(batch_keys)


def buckets_of(padding: bool | Sequence[int], batch_size: int) -> tuple[int, ...]:
    """The sizes that batches are padded to, ascending."""
    if padding is False:
        return tuple(range(1, batch_size + 1))
    if padding is True:
        powers = (1 << i for i in range(batch_size.bit_length()))
        return tuple(sorted({*powers, batch_size}))
    sizes = tuple(sorted({positive("Serving", "padding", n, None) for n in padding}))
    if not sizes or sizes[-1] != batch_size:
        raise ArgumentError(
            "Serving",
            f"the largest size of padding must be batch_size={batch_size}, received "
            f"{padding!r}",
        )
    return sizes


def places_of(
    partitions: int | Sequence[Any] | None, mesh: Any, layout: Any, model: Any
) -> list[DevicePlace]:
    """Where the partitions compute.

    Args:
        partitions, mesh, layout: As of ``Serving``.
        model: What is served. Where it is trained with its weights divided, one copy
            may be more than a device has memory for: its mesh is the default.
    """
    if mesh is not None or layout is not None:
        if partitions is not None:
            raise ArgumentError(
                "Serving", "partitions are copies, mesh= is one: pass one of them"
            )
        return [MeshPlace(make_distribution(mesh, layout, "Serving"))]
    if isinstance(partitions, Sequence) and partitions:
        if all(isinstance(one, Distribution) for one in partitions):
            return list(map(MeshPlace, partitions))
    if partitions is None:
        own = getattr(getattr(model, "_run", None), "value", None)
        distribution = getattr(own, "distribution_in_force", None)
        if distribution is not None and distribution.divides_weights:
            return [MeshPlace(distribution)]
    return list(map(DevicePlace, devices_of(partitions)))


def devices_of(partitions: int | Sequence[Any] | None) -> list[Any]:
    """The devices of partitions of one device each."""
    local = jax.local_devices()
    if partitions is None:
        return local
    if isinstance(partitions, Sequence):
        if not partitions or any(not isinstance(d, jax.Device) for d in partitions):
            raise ArgumentError(
                "Serving",
                f"partitions must be a number, a list of jax devices, or of "
                f"distributions, received "
                f"{partitions!r}",
            )
        return list(partitions)
    count = positive("Serving", "partitions", partitions, None)
    if count > len(local):
        raise ArgumentError(
            "Serving",
            f"each partition needs a device: there are {len(local)}, received "
            f"partitions={count}",
        )
    return local[:count]
