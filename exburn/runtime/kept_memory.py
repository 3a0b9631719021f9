"""Memory that a processor's programs use again, instead of asking Linux for it.

XLA takes the temporary memory of each call by ``malloc``, and gives it back by
``free``. Blocks beyond 32 MiB glibc always has from Linux, which fills every page with
zeros as it is first written: a gigabyte for a step of a small vision transformer. On
two cores that was 30 % of the processor time of its steps, and 37 % of a mixer's.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax

from exburn.runtime.host_memory import has_quarter_free
from exburn.runtime.shared_setting import SharedSetting

# Parameters of glibc's `mallopt`.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -3, -4, -8
# Between runs, the values that glibc reaches by itself once a large block was freed.
_MMAPS, _LARGE = 65_536, 32 << 20
# Threads that compile share one arena then; what that costs was not measured.
_MOST_CORES = 8

_ACCELERATORS = ("jax_plugins", "libtpu")  # packages that bring JAX others


def share_arena() -> None:
    """Has all threads take memory from one arena, which can keep large blocks.

    The arenas that glibc makes for threads, XLA's among them, hold 64 MiB at most.
    Threads that have one stay there: ``import exburn`` calls this before XLA starts.
    """
    mallopt = _mallopt() if _on_processor() else None
    if mallopt is not None and len(os.sched_getaffinity(0)) <= _MOST_CORES:
        mallopt(_ARENA_MAX, 1)


@contextlib.contextmanager
def kept_memory() -> Iterator[None]:
    """Keeps memory that is freed within the block for who asks next.

    Behind it large blocks come from Linux again, and go back to it. Results of programs
    may come to lie between, so that the peak of a process's memory is higher: by none
    to 250 MiB in four models. Where less than a quarter of the memory that the process
    may have is free, nothing changes.

    Example:
        >>> with kept_memory():
        ...     buffer = bytearray(1 << 26)
    """
    with _kept.block() if _keeps() else contextlib.nullcontext():
        yield


def _keeps() -> bool:
    """Whether memory is kept in a block that begins now: as in those around it."""
    possible = _mallopt() is not None and _on_processor()
    return possible and (_kept.blocks > 0 or _has_room(int(time.monotonic() * 10)))


@functools.lru_cache(maxsize=1)
def _has_room(tenth: int) -> bool:
    """Whether memory may be kept, asked once a tenth of a second: the system takes 50
    to 100 µs to say so, and an evaluation of a small model not much longer."""
    return has_quarter_free()


def _begin() -> Any:
    mallopt: Any = _mallopt()
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, -1)  # never
    return mallopt


def _end(mallopt: Any) -> None:
    mallopt(_MMAP_MAX, _MMAPS)
    mallopt(_MMAP_THRESHOLD, _LARGE)
    mallopt(_TRIM_THRESHOLD, 2 * _LARGE)


_kept = SharedSetting(_begin, _end)


def _on_processor() -> bool:
    """Whether JAX's programs run on the processor, asked without starting XLA."""
    platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
    if platforms:
        return platforms.split(",")[0] == "cpu"
    return not _has_accelerators()


@functools.cache
def _has_accelerators() -> bool:
    """Whether a package is installed that brings JAX another device."""
    return any(importlib.util.find_spec(name) for name in _ACCELERATORS)


def _is_chosen() -> bool:
    """Whether the environment sets glibc's malloc, or puts another in its place."""
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    preloaded = os.environ.get("LD_PRELOAD", "")
    named = any(name.startswith("MALLOC_") for name in os.environ)
    return named or "glibc.malloc" in tunables or "malloc" in preloaded


@functools.cache
def _mallopt() -> Callable[[int, int], int] | None:
    """The function of glibc; ``None`` elsewhere, or where the user has set malloc."""
    if not sys.platform.startswith("linux") or _is_chosen():
        return None
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return None
    return library.mallopt
