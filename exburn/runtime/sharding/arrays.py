"""Arrays on their way to a mesh, and back."""

from __future__ import annotations

import functools
import math
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Sharding

from exburn.runtime.sharding import processes
from exburn.runtime.sharding.liveness import await_ready

_LOOKED_AT = 1 << 18  # elements of an array that a checksum is of


def put(value: Any, sharding: Sharding) -> jax.Array:
    """An array laid out over devices, of which each process fills its own.

    All processes have the same value, or an array that spans them already.

    Args:
        value: An array of NumPy's or JAX'.
    """
    if isinstance(value, jax.Array) and value.sharding == sharding:
        return value
    if sharding.is_fully_addressable:
        return jax.device_put(value, sharding)
    if spans_processes(value):
        return _mover(sharding)(value)
    if isinstance(value, jax.Array) and jnp.issubdtype(
        value.dtype, jax.dtypes.prng_key
    ):
        data = put(jax.random.key_data(value), sharding)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(value))
    host = np.asarray(value)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def to_host(value: Any) -> np.ndarray:
    """An array in this process' memory, whatever it spans.

    Where it spans processes and is divided among them, all must ask for it.

    Example:
        >>> to_host(jnp.ones(2)).tolist()
        [1.0, 1.0]
    """
    if spans_processes(value):
        if not value.is_fully_replicated:
            processes.barrier("reading an array of several processes")
            mesh: Any = value.sharding
            whole = jax.sharding.NamedSharding(mesh.mesh, jax.sharding.PartitionSpec())
            value = _mover(whole)(value)
        value = await_ready(value).addressable_data(0)
    return np.asarray(value)


def spans_processes(value: Any) -> bool:
    """Whether an array lies on devices of several processes.

    Example:
        >>> spans_processes(jnp.ones(2)), spans_processes(np.ones(2))
        (False, False)
    """
    return isinstance(value, jax.Array) and not value.is_fully_addressable


def checksum(value: Any) -> int:
    """A number for an array's first values; of one that is divided, for its form."""
    form = zlib.crc32(f"{value.dtype}{value.shape}".encode())
    if isinstance(value, jax.Array) and not value.is_fully_replicated:
        return form
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    first = to_host(value).reshape(-1)[:_LOOKED_AT]
    return zlib.crc32(np.ascontiguousarray(first).tobytes(), form)


def held_bytes(tree: Any) -> int:
    """Bytes that each device holds of arrays, or of specs with or without layouts.

    Example:
        >>> held_bytes({"kernel": jax.ShapeDtypeStruct((4, 2), "float32")})
        32
    """

    def one(value: Any) -> int:
        sharding = getattr(value, "sharding", None)
        shape = value.shape if sharding is None else sharding.shard_shape(value.shape)
        return math.prod(shape) * value.dtype.itemsize

    return sum(map(one, jax.tree.leaves(tree)))


@functools.lru_cache(maxsize=256)
def _mover(sharding: Sharding) -> Any:
    return jax.jit(lambda value: value, out_shardings=sharding)
