"""The host's memory: what the system has, and what limits of this process leave."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def free_host_bytes() -> int:
    """Memory that this process can still have, in its control group, too."""
    return min(free for free, _ in _limits())


def has_quarter_free() -> bool:
    """Whether a quarter of the memory that this process may have is free.

    Example:
        >>> has_quarter_free() in (True, False)
        True
    """
    return all(4 * free > whole for free, whole in _limits())


def _limits() -> Iterator[tuple[int, int]]:
    """What is free and what there is: of the system, and of the process' own limits."""
    page = os.sysconf("SC_PAGE_SIZE")
    yield _system(page)
    with contextlib.suppress(ImportError, OSError):
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_AS)
        if most != resource.RLIM_INFINITY:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * page
            yield max(most - used, 0), most
    group = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError, ValueError):  # no Linux, or "max": no limit
        most = int((group / "memory.max").read_text())
        yield max(most - int((group / "memory.current").read_text()), 0), most


def _system(page: int) -> tuple[int, int]:
    """What is free, or caches would return, and what the system has."""
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        facts = dict(line.split(":") for line in lines)
        if {"MemAvailable", "MemTotal"} <= facts.keys():
            sizes = (facts[name].split()[0] for name in ("MemAvailable", "MemTotal"))
            free, whole = (int(size) << 10 for size in sizes)
            return free, whole
    return os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page
