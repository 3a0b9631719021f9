"""The future that a caller holds while a request is under way."""

from __future__ import annotations

import concurrent.futures
import functools
import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from exburn.errors.boundary import guard_methods


@guard_methods
class Answer(concurrent.futures.Future):
    """The future result of one request; made by ``Serving.submit``.

    It is a ``concurrent.futures.Future``: ``result``, ``cancel``, ``done``,
    ``add_done_callback``, ``concurrent.futures.wait`` and ``asyncio.wrap_future`` work.
    A request can be cancelled until its first row is in a batch. Postprocessing runs in
    the thread that asks for the result, once. Callbacks run in a thread of the serving:
    they must not wait for it.

    Args:
        deadline: ``time.monotonic()`` at which the request fails, or ``None``.
        finish: Postprocessing of the output, or ``None``.

    Example:
        >>> answer = Answer()
        >>> answer.set_result(3)
        >>> answer.done(), answer.result()
        (True, 3)
    """

    def __init__(
        self,
        deadline: float | None = None,
        finish: Callable[[Any], Any] | None = None,
    ):
        super().__init__()
        self.deadline, self._finish = deadline, finish
        self._finishing = None if finish is None else threading.Lock()
        self._finished: tuple[Any, BaseException | None] | None = None
        self._queue: Any = None
        self._request: Callable[[], Any] = _nothing

    def queued(self, queue: Any, request: Any) -> None:
        """Tells where the request waits.

        It is referred to weakly: with a cycle, its arrays would stay until the garbage
        collector comes.
        """
        self._queue, self._request = queue, weakref.ref(request)

    def cancel(self) -> bool:
        """Drops the request, if none of it is in a batch yet."""
        cancelled = super().cancel()
        if cancelled and (request := self._request()) is not None:
            self._queue.drop(request)
        return cancelled

    def add_done_callback(self, fn: Callable[[Any], Any]) -> None:
        """Calls ``fn(answer)`` when the request is done, whatever became of it.

        What it raises is logged, as ``concurrent.futures`` does: it runs in a thread
        of the serving, which even a ``SystemExit`` must not end.
        """
        super().add_done_callback(functools.partial(_call, fn))

    def expire(self) -> None:
        """Fails the request because its deadline has passed."""
        if (request := self._request()) is not None:
            self._queue.expire(request)

    def result(self, timeout: float | None = None) -> Any:
        """The answer, postprocessed.

        Args:
            timeout: Seconds to wait at most; the request itself goes on after them.

        Raises:
            DeadlineExceededError: The request's own ``timeout`` passed first.
            TimeoutError: The ``timeout`` given here passed first.
            CancelledError: The request was cancelled.
        """
        if self.deadline is None and self._finish is None:
            return super().result(timeout)
        value, error = self._settle(timeout)
        if error is not None:
            try:
                raise error
            finally:
                del error  # no cycle through this frame
        return value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error that ``result`` would raise, or ``None``."""
        return self._settle(timeout)[1]

    def _settle(self, timeout: float | None) -> tuple[Any, BaseException | None]:
        error = self._wait(timeout)
        if error is not None:
            return None, error
        output = super().result()
        if self._finish is None or self._finishing is None:
            return output, None
        with self._finishing:
            if self._finished is None:
                try:
                    self._finished = self._finish(output), None
                except Exception as error:
                    self._finished = None, error
            return self._finished

    def _wait(self, timeout: float | None) -> BaseException | None:
        if self.deadline is None:
            return super().exception(timeout)
        left = max(self.deadline - time.monotonic(), 0)
        if timeout is not None and timeout < left:
            return super().exception(timeout)
        try:
            return super().exception(left)
        except concurrent.futures.TimeoutError:
            self.expire()
            return super().exception()


def _call(fn: Callable[[Any], Any], answer: concurrent.futures.Future) -> None:
    try:
        fn(answer)
    except BaseException:
        logging.getLogger(__name__).exception("a callback of an answer raised")


def _nothing() -> None:
    """No request: none was queued."""
