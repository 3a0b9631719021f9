"""Work that a thread does ahead of whoever needs its results."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import jax
import numpy as np

__all__ = ["Prefetch"]

T = TypeVar("T")
_POLL = 0.1  # seconds between two looks at whether a full queue is still wanted


class Prefetch(Generic[T]):
    """An iterator whose items are made by a thread, a few of them ahead.

    The thread starts at once. It waits while ``depth`` items are ready, so that a slow
    consumer costs no memory. Its exceptions are raised where the items are taken, with
    their own traceback. JAX's default device is that of the thread that made this.

    Args:
        make: Makes the iterable; called in the thread.
        depth: Items that may wait.

    Example:
        >>> with Prefetch(lambda: range(3)) as items:
        ...     list(items)
        [0, 1, 2]
    """

    def __init__(self, make: Callable[[], Iterable[T]], depth: int = 2):
        self._items: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(depth)
        self._unwanted = threading.Event()
        self._over = False
        # `jax.default_device(…)` holds in one thread only: here, not in the other one.
        (self._device,) = jax.device_put(np.int8(0)).devices()
        self._thread = threading.Thread(
            target=self._work, args=(make,), name="exburn-feed", daemon=True
        )
        self._thread.start()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._over:
            raise StopIteration
        item, error = self._items.get()
        if error is None:
            return item
        self._over = True
        try:
            raise error
        finally:
            del error  # its traceback holds this frame: no cycle

    def close(self) -> None:
        """Ends the thread, as soon as it has made the item at hand."""
        self._over = True
        self._unwanted.set()
        with contextlib.suppress(queue.Empty):  # it may be waiting for a free place
            while True:
                self._items.get_nowait()
        self._thread.join()

    def __enter__(self) -> Prefetch[T]:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def _work(self, make: Callable[[], Iterable[T]]) -> None:
        source: Any = None
        try:
            with jax.default_device(self._device):
                source = make()
                for item in source:
                    if not self._put(item, None):
                        return
                    del item  # else this thread would hold one more
            self._put(None, StopIteration())
        except BaseException as error:
            self._put(None, error)
        finally:
            if hasattr(source, "close"):
                source.close()

    def _put(self, item: Any, error: BaseException | None) -> bool:
        while not self._unwanted.is_set():
            with contextlib.suppress(queue.Full):
                self._items.put((item, error), timeout=_POLL)
                return not self._unwanted.is_set()
        return False
