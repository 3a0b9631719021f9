"""The memory that this process uses now, on its device and on the host."""

from __future__ import annotations

import dataclasses
import os
import resource
import sys
from typing import Any

import jax

from exburn.runtime.device import chosen_device


@dataclasses.dataclass(frozen=True)
class MemoryUse:
    """Bytes of memory; ``None`` where nobody tells.

    Attributes:
        device: In use on the device, by JAX' own count.
        device_limit: What JAX may use there.
        host: Resident on the host.
    """

    device: int | None
    device_limit: int | None
    host: int | None


def memory_use() -> MemoryUse:
    """The memory in use now; takes some microseconds, and waits for no program.

    Example:
        >>> use = memory_use()
        >>> use.host is None or use.host > 1_000_000
        True
    """
    stats: dict[str, Any] = {}
    try:
        device = chosen_device()
        if device is None or isinstance(device, str):
            device = jax.local_devices(backend=device or None)[0]
        stats = device.memory_stats() or {}
    except (RuntimeError, NotImplementedError):  # no device, or one that does not tell
        pass
    return MemoryUse(stats.get("bytes_in_use"), stats.get("bytes_limit"), _resident())


def _resident() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # not Linux
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
