"""How much memory a device has, and waiting for it."""

from __future__ import annotations

import os
from typing import Any

import jax

from exburn.errors.boundary import api_boundary
from exburn.runtime.device import device_of


@api_boundary
def device_count() -> int:
    """Number of devices of the default kind.

    Example:
        >>> from exburn import compute
        >>> compute.device_count() >= 1
        True
    """
    return jax.device_count()


@api_boundary
def memory_info(device: Any = None) -> dict[str, int | None]:
    """Bytes of a device: ``total``, ``used``, ``free``; None where it does not tell.

    For a CPU these are the machine's memory, what JAX' arrays take, and what is left.

    Args:
        device: A device or its name; the default one if ``None``.

    Example:
        >>> sorted(memory_info())
        ['free', 'total', 'used']
    """
    device = device_of(device, "memory_info") or jax.devices()[0]
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        total, used = stats["bytes_limit"], stats.get("bytes_in_use", 0)
        return {"total": total, "used": used, "free": total - used}
    if device.platform != "cpu":
        return {"total": None, "used": None, "free": None}
    page = os.sysconf("SC_PAGE_SIZE")
    pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else None
    return {
        "total": os.sysconf("SC_PHYS_PAGES") * page,
        "used": sum(a.nbytes for a in jax.live_arrays("cpu")),
        "free": os.sysconf(pages) * page if pages else None,
    }


@api_boundary
def synchronize() -> None:
    """Waits until the devices have done all that was asked of them so far.

    Example:
        >>> from exburn import compute
        >>> compute.synchronize()
    """
    for array in jax.live_arrays():
        array.block_until_ready()
    jax.effects_barrier()
