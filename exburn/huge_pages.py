"""Large memory of the host, made of huge pages while somebody else fills it."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import threading
from collections.abc import Iterator

__all__ = ["huge_pages"]

_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of Linux 5.14, which `mmap` does not name
_LEAST, _JOINED = 256 << 20, 64 << 20
# The kernel keeps a lock for each piece, and whatever else takes memory waits for it:
# with four threads and 32 MiB models were built a third slower meanwhile.
_PIECE, _HELPERS = 4 << 20, 2
_POLL = 0.001
_MAPS = "/proc/self/maps"


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
    if size < _LEAST or not os.path.exists(_MAPS):  # Linux' own
        yield
        return
    over = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(size, _mapped(size), over), name="exburn-huge-pages"
    )
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _watch(size: int, known: set[int], over: threading.Event) -> None:
    while not over.wait(_POLL):
        for start in _mapped(size) - known:
            _fill_in(start, start + size, over)
            return


def _fill_in(start: int, end: int, over: threading.Event) -> None:
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    advise(start, end - start, mmap.MADV_HUGEPAGE)  # a kernel may have none
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

    helpers = [threading.Thread(target=work) for _ in range(_HELPERS)]
    for helper in helpers:
        helper.start()
    for helper in helpers:
        helper.join()


def _mapped(size: int) -> set[int]:
    """Where private memory without a file begins that has ``size`` bytes.

    A little more, since Linux joins what lies side by side; but what is much larger is
    somebody else's, who may want none of it filled in.
    """
    found = set()
    with open(_MAPS) as lines:
        for line in lines:
            place, access, _, _, node, *path = line.split(maxsplit=5)
            start, end = (int(address, 16) for address in place.split("-"))
            fits = size <= end - start <= size + _JOINED
            if fits and access == "rw-p" and node == "0" and not path:
                found.add(start)
    return found
