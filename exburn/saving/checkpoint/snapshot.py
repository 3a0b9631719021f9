"""Copies of arrays that the next program call is going to overwrite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.runtime.sharding.arrays import spans_processes


class Snapshot:
    """Copies device arrays at memory speed, so that training goes on beside the disk.

    On an accelerator the copies are made on the device, asynchronously. On a CPU they
    go into buffers that are used again and again: memory that is touched for the first
    time costs several times as much as the copy.
    """

    def __init__(self):
        self._buffers: dict[str, np.ndarray] = {}

    def take(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Copies, valid until the next call."""
        copies: dict[str, Any] = {}
        spanning = {n: a for n, a in arrays.items() if spans_processes(a)}
        if spanning:
            copies = _copy(spanning)
        for name, array in arrays.items():
            if name in spanning:
                continue
            if not isinstance(array, jax.Array):
                copies[name] = array
            elif _on_host(array):
                copies[name] = buffer = self._buffer(name, array)
                np.copyto(buffer, np.asarray(array))
            else:
                copies[name] = jax.device_put(array, array.sharding, may_alias=False)
        return copies

    def _buffer(self, name: str, array: jax.Array) -> np.ndarray:
        buffer = self._buffers.get(name)
        if buffer is None or (buffer.shape, buffer.dtype) != (array.shape, array.dtype):
            buffer = self._buffers[name] = np.empty(array.shape, array.dtype)
        return buffer


@jax.jit
def _copy(arrays: dict[str, Any]) -> dict[str, Any]:
    return jax.tree.map(jnp.copy, arrays)


def _on_host(array: Any) -> bool:
    return isinstance(array, jax.Array) and all(
        device.platform == "cpu" for device in array.devices()
    )
