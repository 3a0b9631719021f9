"""Large memory of the host, made of huge pages while somebody else fills it."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator

# MADV_HUGEPAGE, and MADV_POPULATE_WRITE of Linux 5.14: `mmap` does not name them all.
_HUGEPAGE, _POPULATE_WRITE = 14, 23
# What is much larger than it should be is somebody else's, who may want none of it.
_LEAST, _JOINED = 256 << 20, 64 << 20
# The kernel keeps a lock for each piece, and whatever else takes memory waits for it:
# with four threads and 32 MiB models were built a third slower meanwhile.
_PIECE, _HELPERS = 4 << 20, 2
_POLL = 0.003  # seconds; a look takes one or two thousandths


@contextlib.contextmanager
def huge_pages(size: int) -> Iterator[None]:
    """Finds memory that is taken within the block, and has Linux fill it in quickly.

    Who writes to new memory from its beginning to its end waits for each page of 4 KiB,
    2 GB a second; threads that run ahead with pages of 2 MiB make it three times as
    fast. What the memory holds is not touched. Where this cannot be done, nothing is.

    Args:
        size: Bytes that are taken at once; few are left alone.

    Example:
        >>> with huge_pages(1 << 30):
        ...     zeros = bytearray(8)
    """
    over = threading.Event()
    regions = _mapped_regions() if size >= _LEAST else None
    watcher = threading.Thread(
        target=_watch, args=(size, regions, over), name="exburn-huge-pages", daemon=True
    )
    try:
        if regions is not None:
            with contextlib.suppress(RuntimeError):  # no thread is to be had
                watcher.start()
        yield
    finally:
        over.set()
        if watcher.ident is not None:
            watcher.join()


def _watch(size: int, regions: list[tuple[int, int]], over: threading.Event) -> None:
    while not over.wait(_POLL):
        now = _mapped_regions()
        if now is None:
            return
        for start, end in now:
            if not size <= end - start <= size + _JOINED:
                continue
            if (place := _new(start, end, size, regions)) is not None:
                _fill_in(place, place + size, over)
                return


def _new(start: int, end: int, size: int, regions: list[tuple[int, int]]) -> int | None:
    """Where so many bytes begin that were not there: Linux joins old and new."""
    for old_start, old_end in regions:
        if start < old_end and old_start < end:
            if old_start - start >= size:
                return start
            start = old_end
    return start if end - start >= size else None


def _fill_in(start: int, end: int, over: threading.Event) -> None:
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    advise(start, end - start, _HUGEPAGE)  # a kernel may have none
    places = iter(range(start, end, _PIECE))
    lock = threading.Lock()

    def work() -> None:
        while not over.is_set():
            with lock:
                place = next(places, None)
            if place is None:
                return
            if advise(place, min(_PIECE, end - place), _POPULATE_WRITE):
                return  # an older kernel, or the memory was given back

    helpers = [threading.Thread(target=work, daemon=True) for _ in range(_HELPERS)]
    with contextlib.suppress(RuntimeError):  # no thread is to be had
        for helper in helpers:
            helper.start()
    for helper in helpers:
        if helper.ident is not None:
            helper.join()


def _mapped_regions() -> list[tuple[int, int]] | None:
    """Private memory without a file; ``None`` if the kernel does not say."""
    regions = []
    try:
        with open("/proc/self/maps") as lines:
            for line in lines:
                place, access, _, _, node, *path = line.split(maxsplit=5)
                if access == "rw-p" and node == "0" and not path:
                    start, end = place.split("-")
                    regions.append((int(start, 16), int(end, 16)))
    except (OSError, ValueError):  # no Linux, no file to be had, another format
        return None
    return regions
