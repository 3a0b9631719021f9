"""Requests one after the other, and answers as they come."""

from __future__ import annotations

import asyncio
import functools
import queue
import time
from collections import deque
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
)
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from exburn.data import ArrayDataset
from exburn.errors import ArgumentError, QueueFullError
from exburn.models.arguments import positive
from exburn.serving.answer import Answer

if TYPE_CHECKING:
    from exburn.serving.server import Serving


def stream(
    self: Serving,
    requests: Iterable[Any],
    *,
    key: Hashable | None = None,
    timeout: Any = None,
    ahead: int | None = None,
    copy: bool = True,
) -> Iterator[Any]:
    """Answers to an iterable of requests, in their order.

    Args:
        requests: Each item is a request of any size, as for ``run``.
        key: Their batch key; found by the shapes if there are several.
        timeout: Seconds for each request.
        ahead: Requests under way at once, by default two a device. The next one is
            drawn when an answer is taken, so a slow consumer slows the source down.
        copy: Whether the arrays of each request are copied, as ``submit`` does.

    Yields:
        The answer to each request. One that fails raises, and ends the stream.
    """
    if isinstance(requests, np.ndarray | jax.Array | Mapping):
        raise ArgumentError(
            "serving.stream",
            "an iterable of requests is needed, received one "
            f"{type(requests).__name__}",
            hint="For the answer to one request in parts: serving.batches(x).",
        )

    def send(x: Any) -> Answer:
        return self.submit(x, key=key, timeout=timeout, copy=copy)

    sends = (functools.partial(send, x) for x in requests)
    return _flow(sends, _ahead(self, ahead))


def batches(
    self: Serving,
    x: Any,
    *,
    key: Hashable | None = None,
    timeout: Any = None,
    ahead: int | None = None,
) -> Iterator[Any]:
    """The answer to one large request in parts of ``batch_size`` rows, in order.

    Args:
        x: The rows. Preprocessing sees all of them, postprocessing each part.
        key: The batch key; found by the shapes if there are several.
        timeout: Seconds for each part.
        ahead: Parts under way at once, by default two a device.
    """
    x, info = self._prepare(x)
    data = ArrayDataset(x, op="serving")
    size = self.batch_size

    def send(start: int) -> Answer:
        part = data.rows(start, min(start + size, data.size)).tree[0]
        return self._queue(part, info, key, timeout)

    sends = (lambda at=at: send(at) for at in range(0, data.size, size))
    return _flow(sends, _ahead(self, ahead))


async def astream(
    self: Serving,
    requests: Iterable[Any] | AsyncIterable[Any],
    *,
    key: Hashable | None = None,
    timeout: Any = None,
    ahead: int | None = None,
) -> AsyncIterator[Any]:
    """As ``stream``, for coroutines: ``async for answer in serving.astream(…)``.

    An asynchronous source is drawn from while answers are awaited, so each answer
    comes as soon as it is there.
    """
    line: asyncio.Queue = asyncio.Queue(_ahead(self, ahead))
    under_way: deque[asyncio.Future] = deque()

    async def send(x: Any) -> None:
        while True:
            try:
                answer = self.submit(x, key=key, timeout=timeout)
                break
            except QueueFullError:
                waiting = [task for task in under_way if not task.done()]
                if not waiting:
                    raise
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        under_way.append(asyncio.ensure_future(self.wait_for(answer)))
        await line.put(under_way[-1])

    async def feed() -> None:
        try:
            async for x in _each(requests):
                await send(x)
        except Exception as error:
            await line.put(error)
        else:
            await line.put(None)

    feeder = asyncio.ensure_future(feed())
    try:
        while (item := await line.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield await item
            under_way.popleft()
    finally:
        left = [feeder, *under_way]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def events(
    self: Serving, x: Any, *, key: Hashable | None = None, timeout: Any = None
) -> Iterator[tuple[str, Any]]:
    """The values that the program streams for a request, and then its answer.

    Args:
        x: The rows: ``batch_size`` at most.
        key: The batch key; found by the shapes if there are several.
        timeout: Seconds for the request.

    Yields:
        ``(name, value)`` for every ``serving.emit`` under one of the serving's
        ``hooks``, with the rows of this request; at the end ``("batch", answer)``.

    Raises:
        ArgumentError: The serving has no hooks, or the request is too large.
    """
    if not self._hooks:
        raise ArgumentError(
            "serving.events",
            "the serving was made without hooks",
            hint='Serving(model, hooks=["name"]), with emit("name", value) inside.',
        )
    events: queue.SimpleQueue = queue.SimpleQueue()
    answer = self._request(
        x, key, timeout, copy=True, listener=lambda *event: events.put(event)
    )
    answer.add_done_callback(lambda _: events.put(None))
    return _events(events, answer)


def _ahead(serving: Serving, ahead: int | None) -> int:
    return positive("serving", "ahead", ahead, 2 * len(serving.devices))


def _flow(sends: Iterable[Callable[[], Answer]], ahead: int) -> Iterator[Any]:
    """Answers in order; with a full queue, one's own answers are waited for first."""
    under_way: deque[Answer] = deque()
    try:
        for send in sends:
            while True:
                try:
                    under_way.append(send())
                    break
                except QueueFullError:
                    if not under_way:
                        raise
                    yield under_way.popleft().result()
            while under_way and (len(under_way) >= ahead or under_way[0].done()):
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        for answer in under_way:
            answer.cancel()


def _events(events: queue.SimpleQueue, answer: Answer) -> Iterator[tuple[str, Any]]:
    try:
        while True:
            left = None
            if answer.deadline is not None:
                left = max(answer.deadline - time.monotonic(), 0)
            try:
                event = events.get(timeout=left)
            except queue.Empty:
                break
            if event is None:
                break
            yield event
        yield "batch", answer.result()
    finally:
        answer.cancel()


async def _each(items: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[Any]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
        return
    for item in items:
        yield item
