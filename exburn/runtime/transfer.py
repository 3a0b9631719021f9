"""Small values on their way to the device, and back."""

from __future__ import annotations

import functools
import weakref
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from exburn.runtime.device import chosen_device

_SMALL = 1 << 16  # bytes that a program may write into the host's memory
_OFTEN = 8  # times before that, since the program takes 15 ms to compile
_times: Counter[tuple] = Counter()  # by shapes and dtypes
_LARGE = 4 << 20  # bytes that go by way of memory that the device writes to itself
_PART = 128 << 20  # of them that do so at a time
_UNDER_WAY = 2  # parts


#: What holds arrays on the device only to save time: each has a ``release``.
spare: weakref.WeakSet[Any] = weakref.WeakSet()


def release_spare() -> None:
    """Gives up all arrays that only save time: their memory is needed."""
    for store in list(spare):
        store.release()


def batch_number(number: int) -> Any:
    """The number of a run's batch as a program's argument: the first one is kept."""
    return np.int32(number) if number else device_constant(0)


def device_constant(value: Any, dtype: Any = "int32") -> jax.Array:
    """A number, or a tuple of them, that is sent to the device once.

    A program's argument from host memory costs a call 30 to 60 µs on the host of an
    H200, one on the device 4.

    Args:
        value: The number or numbers; no more than a few.

    Example:
        >>> device_constant(3) is device_constant(3), device_constant((3,)).shape
        (True, (1,))
        >>> device_constant((True,), "bool").dtype.name
        'bool'
    """
    return _cached_constant(value, dtype, chosen_device())


@functools.lru_cache(maxsize=256)
def _cached_constant(value: Any, dtype: Any, device: Any) -> jax.Array:
    return jax.device_put(np.asarray(value, dtype))


def to_host_async(tree: Any) -> Any:
    """A program's outputs on their way to the host, where ``np.asarray`` awaits them.

    Small ones of a GPU are written there by a program, into memory that both can use:
    an epoch of one step of a tiny model on an H200 took 0.6 ms so, and 0.9 to 1.2 with
    ``copy_to_host_async``. Were they written by the program that computes them, JAX
    would bind all of its outputs to the device.
    """
    platform = jax.default_backend()
    if platform == "cpu":
        return tree
    leaves = jax.tree.leaves(tree)
    if platform == "gpu" and _is_small(leaves):
        form = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        _times[form] += 1
        if _times[form] > _OFTEN:
            return _writer(leaves[0].sharding)(tree)
    return jax.tree.map(_send, tree)


def _send(array: jax.Array) -> jax.Array:
    """The array, on its way.

    A large one goes into memory that a GPU writes to itself, which is used again for
    the next one: an H200 sends 55 GB/s there, and 2 GB/s into memory that is new each
    time, as that of ``copy_to_host_async`` is.
    """
    if not is_large(array):
        array.copy_to_host_async()
    elif array.nbytes <= _PART:
        return _pin(array)
    return array


def _pin(array: jax.Array) -> jax.Array:
    try:
        return jax.device_put(array, array.sharding.with_memory_kind("pinned_host"))
    except jax.errors.JaxRuntimeError:  # the system gives no more of it
        array.copy_to_host_async()
        return array


def is_large(array: jax.Array) -> bool:
    """Whether an array is, or should be, in memory that a GPU writes to itself."""
    return (
        jax.default_backend() == "gpu"
        and array.ndim > 1
        and array.nbytes >= _LARGE
        and isinstance(array.sharding, jax.sharding.SingleDeviceSharding)
    )


def in_parts(array: jax.Array) -> Iterator[tuple[int, np.ndarray]]:
    """Rows of ``[steps, batch, …]`` on the host, and the number of the first of them.

    What `to_host_async` left on the device, since it is very large, comes in parts. A
    part is to be copied before the next one is taken; rows can come twice.
    """
    if array.sharding.memory_kind == "pinned_host":
        yield 0, np.asarray(array).reshape(-1, *array.shape[2:])
        return
    steps, batch = array.shape[:2]
    size = max(array.nbytes // steps, 1)
    lead = min(max(_PART // size, 1), steps)
    rows = batch if size <= _PART else max(batch * _PART // size, 1)
    shape = (lead, rows, *array.shape[2:])
    sent: deque[tuple[int, jax.Array]] = deque()

    def fetch() -> tuple[int, np.ndarray]:
        start, part = sent.popleft()
        return start, np.asarray(part).reshape(-1, *array.shape[2:])

    corners = [  # the last parts are whole ones, too
        (min(step, steps - lead), min(row, batch - rows))
        for step in range(0, steps, lead)
        for row in range(0, batch, rows)
    ]
    for step, row in corners:
        corner = (step, row, *[0] * (array.ndim - 2))
        part = jax.lax.dynamic_slice(array, corner, shape)
        sent.append((step * batch + row, _pin(part)))
        if len(sent) > _UNDER_WAY:
            yield fetch()
    while sent:
        yield fetch()


def _is_small(leaves: list[Any]) -> bool:
    """Whether there is little of them, all on one device."""
    place = leaves[0].sharding if leaves else None
    return (
        isinstance(place, jax.sharding.SingleDeviceSharding)
        and all(leaf.sharding == place for leaf in leaves)
        and sum(leaf.nbytes for leaf in leaves) <= _SMALL
    )


@functools.lru_cache(maxsize=8)
def _writer(place: Any) -> Any:
    host = place.with_memory_kind("pinned_host")
    return jax.jit(lambda tree: tree, out_shardings=host)
