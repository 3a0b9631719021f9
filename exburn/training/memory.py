"""Whether data should live on the device."""

from __future__ import annotations

import os

import jax

__all__ = ["fits_device"]


def fits_device(nbytes: int) -> bool:
    """Whether data of this size may stay on the device for a whole run.

    A quarter of the free memory at most: gathering, activations and the optimizer need
    the rest. Where a backend does not say (CPU), the machine's memory counts.
    """
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        free = stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    else:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return nbytes <= free // 4
