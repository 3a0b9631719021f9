"""Means of losses and metrics on their way from the device to the logs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.runtime.transfer import to_host_async


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["numbers", "others"],
    meta_fields=["names"],
)
@dataclasses.dataclass(frozen=True)
class Readings:
    """Values by name, the single numbers of which come in one transfer.

    They are ready when the chunk is that they come from, and, unlike the state, stay.

    Attributes:
        numbers: Those that are one float32 each, in one array; in the order of
            ``names``.
    """

    numbers: Any
    others: dict[str, Any]
    names: tuple[str, ...]

    def send(self) -> Readings:
        """The values on their way to the host, where ``read`` waits for them."""
        numbers, others = to_host_async(
            (self.numbers, self.others)
        )  # one for all names
        return Readings(numbers, others, self.names)

    def read(self) -> dict[str, Any]:
        """The values on the host: Python floats, and arrays where they have axes."""
        others = jax.device_get(self.others) if self.others else {}
        numbers = np.asarray(self.numbers).tolist()
        return dict(zip(self.names, numbers, strict=True)) | {
            name: float(value) if np.ndim(value) == 0 else value
            for name, value in others.items()
        }


def pack(values: Mapping[str, Any]) -> Readings:
    """The values as a compiled program returns them.

    Example:
        >>> pack({"loss": jnp.float32(0.5), "hits": jnp.arange(2)}).read()
        {'loss': 0.5, 'hits': array([0, 1], dtype=int32)}
    """
    small = {
        name: value
        for name, value in values.items()
        if jnp.ndim(value) == 0 and jnp.result_type(value) == jnp.float32
    }
    others = {name: value for name, value in values.items() if name not in small}
    numbers = jnp.stack(list(small.values())) if small else jnp.zeros(0)
    return Readings(numbers, others, tuple(small))
