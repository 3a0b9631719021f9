"""What a caller holds while a request is under way."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable
from typing import Any

__all__ = ["Answer"]


class Answer(concurrent.futures.Future):
    """The future result of one request; made by ``Serving.submit``.

    It is a ``concurrent.futures.Future``: ``result``, ``cancel``, ``done``,
    ``add_done_callback``, ``concurrent.futures.wait`` and ``asyncio.wrap_future`` work.
    A request can be cancelled until its first row is in a batch. Postprocessing runs in
    the thread that asks for the result, once. Callbacks run in a thread of the serving:
    they must not wait for it.

    Args:
        deadline: ``time.monotonic()`` at which the request fails, or ``None``.
        expire: Called when a waiting thread finds that the deadline has passed.
        finish: Postprocessing of the output, or ``None``.
    """

    def __init__(
        self,
        deadline: float | None = None,
        expire: Callable[[], None] | None = None,
        finish: Callable[[Any], Any] | None = None,
    ):
        super().__init__()
        self.deadline, self._expire, self._finish = deadline, expire, finish
        self._finishing = threading.Lock()
        self._finished: tuple[Any, BaseException | None] | None = None

    def result(self, timeout: float | None = None) -> Any:
        """The answer, postprocessed.

        Args:
            timeout: Seconds to wait at most; the request itself goes on after them.

        Raises:
            DeadlineExceededError: The request's own ``timeout`` passed first.
            TimeoutError: The ``timeout`` given here passed first.
            CancelledError: The request was cancelled.
        """
        value, error = self._settled(timeout)
        if error is not None:
            try:
                raise error
            finally:
                del error  # no cycle through this frame
        return value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What ``result`` would raise, or ``None``."""
        return self._settled(timeout)[1]

    def _settled(self, timeout: float | None) -> tuple[Any, BaseException | None]:
        error = self._wait(timeout)
        if error is not None:
            return None, error
        output = super().result()
        if self._finish is None:
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
            if self._expire is not None:
                self._expire()
            return super().exception()
