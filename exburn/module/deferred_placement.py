"""Weights that are made while a GPU starts, and go there when it has."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import MutableMapping
from typing import Any

import jax
import numpy as np
from flax import nnx

from exburn.core import random_keys
from exburn.runtime.device import chosen_device, host, waking
from exburn.runtime.sharding.arrays import put
from exburn.runtime.sharding.current import active


@dataclasses.dataclass
class _Waiting:
    """A weight whose value is in the host's memory for the time being."""

    weight: nnx.Variable
    array: jax.Array  # what the weight holds until then
    device: Any  # where JAX put new arrays
    values: MutableMapping[str, jax.Array]  # where the array is noted, too
    path: str


_waiting: list[_Waiting] = []
_lock = threading.Lock()


def place_value(
    value: np.ndarray,
    weight: nnx.Variable,
    values: MutableMapping[str, jax.Array],
    path: str,
) -> jax.Array:
    """A weight's first value as an array; noted as ``values[path]``.

    While a GPU starts, which takes 1.5 s, the array is one of the host's, which
    programs take as well: meanwhile a model is built, and its program traced. With a
    distribution in force each device gets its part at once.
    """
    if (distribution := active()) is not None:
        sharding = distribution.weight_sharding(path, value.shape)
        array = values[path] = put(value, sharding)
        return array
    place = host() if waking() else None
    if place is None:
        array = values[path] = jax.device_put(value)
        return array
    with jax.default_device(place):  # not bound to it, as it would be by its argument
        array = values[path] = jax.device_put(value)
    _waiting.append(_Waiting(weight, array, chosen_device(), values, path))
    return array


def arrive() -> None:
    """Sends what waits, if it is still what its weight holds; waits for the GPU."""
    if not _waiting or random_keys.tracing():
        return
    with _lock:
        while _waiting:
            one = _waiting.pop()
            if one.weight.get_raw_value() is not one.array:
                continue
            with jax.default_device(one.device):
                array = jax.device_put(np.asarray(one.array))
            if one.values.get(one.path) is one.array:
                one.values[one.path] = array
            one.weight.set_raw_value(array, _unsafe_bypass_check=True)
