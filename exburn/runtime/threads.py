"""Work that a thread does ahead of whoever needs its results, and threads' turns."""

from __future__ import annotations

import collections
import contextlib
import itertools
import queue
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, Generic, TypeVar

import jax

from exburn.runtime.device import chosen_device
from exburn.runtime.shared_setting import SharedSetting

T = TypeVar("T")
_POLL = 0.1  # seconds between two looks at whether a full queue is still wanted
_GLANCE = 0.5  # seconds after which a wait for an item is told of
_PATIENCE = 1.0  # seconds that Ctrl-C waits for an item under way


class Prefetch(Generic[T]):
    """An iterator whose items are made by a thread, a few of them ahead.

    The thread starts at once. It waits while ``depth`` items are ready, so that a slow
    consumer costs no memory. Its exceptions are raised where the items are taken, with
    their own traceback. JAX's default device is that of the thread that made this.

    Args:
        make: Makes the iterable; called in the thread.
        depth: Items that may wait.
        waiting: Called twice a second while an item is not there yet.
    """

    def __init__(
        self,
        make: Callable[[], Iterable[T]],
        depth: int = 2,
        waiting: Callable[[], None] = lambda: None,
    ):
        self._waiting = waiting
        # Of C: Ctrl-C within `queue.Queue`, which is Python, can leave its lock held.
        self._items: queue.SimpleQueue[tuple[Any, BaseException | None]]
        self._items, self._places = queue.SimpleQueue(), queue.SimpleQueue()
        for _ in range(depth):
            self._places.put(None)
        self._unwanted = threading.Event()
        self._over = False
        # `jax.default_device(…)` holds in one thread only: here, not in the other one.
        device = chosen_device()
        # The thread holds no reference to this object: should Ctrl-C come where nobody
        # has the object yet, or any more, it is dropped and the thread ends, too.
        weakref.finalize(self, self._unwanted.set)
        self._thread = threading.Thread(
            target=_work,
            args=(make, self._items, self._places, self._unwanted, device),
            name="exburn-feed",
            daemon=True,
        )
        try:
            self._thread.start()
        except BaseException:  # Ctrl-C while it starts
            self._unwanted.set()
            raise

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._over:
            raise StopIteration
        item, error = self._next()
        if error is None:
            return item
        self._over = True
        try:
            raise error
        finally:
            del error  # its traceback holds this frame: no cycle

    def _next(self) -> tuple[Any, BaseException | None]:
        while True:
            with contextlib.suppress(queue.Empty):
                item = self._items.get(timeout=_GLANCE)
                self._places.put(None)
                return item
            self._waiting()

    def ready(self) -> Iterator[T]:
        """The items that are there already, when the first one is asked for."""
        for _ in range(self._items.qsize()):
            with contextlib.suppress(StopIteration):
                yield next(self)

    def close(self, patience: float | None = None) -> None:
        """Ends the thread, as soon as it has made the item at hand.

        Args:
            patience: Seconds to wait for that; for ever if ``None``.
        """
        self._over = True
        self._unwanted.set()
        self._places.put(None)  # it may be waiting for one
        self._thread.join(patience)
        with contextlib.suppress(queue.Empty):
            while True:
                self._items.get_nowait()
        self._items.put((None, StopIteration()))  # another thread may wait for an item

    def __enter__(self) -> Prefetch[T]:
        return self

    def __exit__(self, kind: type | None, *_) -> None:
        self.close(_PATIENCE if kind is KeyboardInterrupt else None)


def _work(
    make: Callable[[], Iterable[Any]],
    items: queue.SimpleQueue,
    places: queue.SimpleQueue,
    unwanted: threading.Event,
    device: Any,
) -> None:
    """Puts ``(item, error)`` into a queue, until one of the two ends it."""

    def put(item: Any, error: BaseException | None) -> bool:
        while not unwanted.is_set():
            with contextlib.suppress(queue.Empty):
                places.get(timeout=_POLL)
                break
        if not unwanted.is_set():
            items.put((item, error))
        return not unwanted.is_set()

    source: Any = None
    try:
        with jax.default_device(device):
            source = make()
            for item in source:
                if not put(item, None):
                    return
                del item  # else this thread would hold one more
        put(None, StopIteration())
    except BaseException as error:
        put(None, error)
    finally:
        if hasattr(source, "close"):
            source.close()


def ahead(
    pool: Executor,
    get: Callable[[int], Any],
    order: Iterable[int],
    depth: int,
    waiting: collections.deque[Future] | None = None,
) -> Iterator:
    """Yields ``get(index)`` in order, some of them made before they are asked for.

    Args:
        pool: Makes them.
        get: Makes one.
        depth: Batches that may wait, made but not used.
        waiting: Holds those under way, that which is waited for as well.
    """
    indices = iter(order)
    waiting = collections.deque() if waiting is None else waiting
    try:
        for index in itertools.islice(indices, depth):
            waiting.append(pool.submit(get, index))
        while waiting:
            batch = waiting[0].result()
            waiting.popleft()
            for index in itertools.islice(indices, 1):
                waiting.append(pool.submit(get, index))
            yield batch
    finally:  # of a reader that stops early, or after an error
        for unwanted in waiting:
            unwanted.cancel()


class Threads(Executor):
    """Threads that do not keep a program alive, should one be at its batch for ever.

    Those of ``ThreadPoolExecutor`` do: after Ctrl-C the program would not end.

    Args:
        count: How many.
        name: What their names begin with.
    """

    def __init__(self, count: int, name: str):
        self._tasks: queue.SimpleQueue = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}_{i}", daemon=True)
            for i in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable, /, *args: Any, **kwargs: Any) -> Future:
        """Has a thread call the function."""
        future: Future = Future()
        self._tasks.put((future, fn, args, kwargs))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the threads, after what was submitted unless that is cancelled."""
        while cancel_futures and not self._tasks.empty():
            self._tasks.get()[0].cancel()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, fn, args, kwargs = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)
            del task, future  # else this thread would hold a batch


_TURN = 1e-4  # seconds; Python's are 5e-3


def _shorten_turns() -> float:
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(_TURN, before))
    return before


_short_turns = SharedSetting(_shorten_turns, sys.setswitchinterval)


@contextlib.contextmanager
def short_turns(enabled: bool = True) -> Iterator[None]:
    """In the block, in all threads, 0.1 ms, if that is ``enabled``.

    The thread that launches programs needs the interpreter a few times for each chunk,
    and threads that read and send the next ones have it for about half of the time. On
    an H200 each chunk of 7 ms waited 0.3 to 2 ms for it.
    """
    with _short_turns.block() if enabled else contextlib.nullcontext():
        yield
