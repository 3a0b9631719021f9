"""The options of a serving, checked, and what they mean."""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

import jax

from exburn.core.checks import check_count
from exburn.errors import ArgumentError, unknown_name
from exburn.models.arguments import positive
from exburn.runtime.sharding.strategies import Distribution, make_distribution
from exburn.serving.place import DevicePlace, MeshPlace

DEFAULT = "default"  # the batch key of a serving that was given none

_UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_PATTERN = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(us|µs|ms|s|min)\s*")
_T = TypeVar("_T")


class Argument(NamedTuple):
    """The form of an option in a command line.

    Attributes:
        help: What the option is, with its default.
    """

    shown: str
    help: str
    type: Callable[[str], Any] = str


def number_or_text(text: str) -> Any:
    """A number as one, and what has a unit as it is.

    Example:
        >>> number_or_text("8"), number_or_text("0.5"), number_or_text("8 MB")
        (8, 0.5, '8 MB')
    """
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class Duration(float):
    """Seconds that were checked: `seconds` takes them as they are."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServingOptions:
    """The options of a ``Serving``, which tells what each of them is."""

    batch_size: Annotated[int, Argument("N", "most rows of a batch (32)", int)] = 32
    batch_timeout: Annotated[
        float,
        Argument("TIME", 'how long a row waits for others ("0 s")', number_or_text),
    ] = Duration(0.05)
    partitions: Annotated[
        int | Sequence[Any] | None,
        Argument("N", "devices, with a copy of the weights each (all)", int),
    ] = None
    mesh: Annotated[
        Any, Argument("NAME", 'divides one copy over all devices: "fsdp"')
    ] = None
    layout: Any = None
    padding: bool | Sequence[int] = True
    example: Any = None
    batch_keys: Mapping[Hashable, Any] | None = None
    weights: Any = None
    preprocessing: Callable[[Any], tuple[Any, Any]] | None = None
    postprocessing: Callable[[Any, Any], Any] | None = None
    max_queue: Annotated[
        int, Argument("N", "requests to a model that may wait (1024)", int)
    ] = 1024
    check_numerics: bool = False
    burst: int | None = None
    hooks: Sequence[str] = ()

    def __post_init__(self) -> None:
        hooks = self.hooks
        normalize(
            self,
            batch_size=positive("Serving", "batch_size", self.batch_size, 32),
            batch_timeout=seconds(
                "Serving", "batch_timeout", self.batch_timeout, most=10
            ),
            burst=positive("Serving", "burst", self.burst),
            max_queue=positive("Serving", "max_queue", self.max_queue, 1024),
            hooks=(hooks,) if isinstance(hooks, str) else tuple(hooks),
        )
        for name in ("preprocessing", "postprocessing"):
            if not (getattr(self, name) is None or callable(getattr(self, name))):
                raise ArgumentError("Serving", f"{name} must be a function")
        _ = self.buckets, self.examples  # checks them

    @property
    def buckets(self) -> tuple[int, ...]:
        """The sizes that batches are padded to, ascending."""
        if self.padding is False:
            return tuple(range(1, self.batch_size + 1))
        if self.padding is True:
            powers = (1 << i for i in range(self.batch_size.bit_length()))
            return tuple(sorted({*powers, self.batch_size}))
        counts = {check_count("Serving", "padding", n) for n in self.padding}
        if max(counts, default=0) != self.batch_size:
            raise ArgumentError(
                "Serving",
                f"the largest size of padding must be batch_size={self.batch_size}, "
                f"received {self.padding!r}",
            )
        return tuple(sorted(counts))

    @property
    def examples(self) -> dict[Hashable, Any]:
        """An example of the input, or ``None``, for each batch key."""
        keys = self.batch_keys
        if keys is None:
            return {DEFAULT: self.example}
        if self.example is not None or not isinstance(keys, Mapping) or not keys:
            raise ArgumentError(
                "Serving",
                "batch_keys must be a dict {key: example}, instead of example",
                {"received": type(keys).__name__},
            )
        return dict(keys)


def normalize(options: Any, **values: Any) -> None:
    """Sets fields of frozen options to what their values mean."""
    for name, value in values.items():
        object.__setattr__(options, name, value)


def names_of(options: type) -> list[str]:
    """The names of options."""
    return [field.name for field in dataclasses.fields(options)]


def change_options(
    options: _T, changes: Mapping[str, Any], op: str, others: Iterable[str] = ()
) -> _T:
    """The same options but for some.

    Args:
        others: Further names that are offered where one is unknown.

    Example:
        >>> change_options(ServingOptions(), {"batch_size": 8}, "f").batch_size
        8
    """
    values: Any = options
    names = names_of(values)
    for name in changes:
        if name not in names:
            raise unknown_name("option", name, {*names, *others}, op=op)
    return dataclasses.replace(values, **changes)


def seconds(op: str, name: str, value: Any, *, most: float = math.inf) -> Duration:
    """A duration in seconds.

    Args:
        value: ``"50 ms"``, a ``datetime.timedelta``, or a number of seconds.
        most: Longest that a bare number may be: more was meant in another unit.

    Example:
        >>> import datetime
        >>> seconds("f", "wait", "50 ms"), seconds("f", "wait", 0.05)
        (0.05, 0.05)
        >>> seconds("f", "wait", datetime.timedelta(milliseconds=50))
        0.05
    """
    if isinstance(value, Duration):
        return value
    match = _PATTERN.fullmatch(value) if isinstance(value, str) else None
    if match:
        return Duration(float(match[1]) * _UNITS[match[2]])
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
    return Duration(result)


def places_of(
    partitions: int | Sequence[Any] | None, mesh: Any, layout: Any, model: Any
) -> list[DevicePlace]:
    """The places where the partitions compute.

    Args:
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
        own = getattr(model, "_training_session", None)
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
                "partitions must be a number, a list of jax devices, or of "
                f"distributions, received {partitions!r}",
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
