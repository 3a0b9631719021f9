"""Answers that come in parts: server-sent events of models that generate.

A model generates if it has a method ``stream(request)`` that yields: a generator, or an
asynchronous one. ``request`` is the JSON object that the client sent. Each part is a
dict, or a text, which stands for ``{"text_output": text}``.

Source: *Generate extension*, Triton; *Server-sent events*, HTML Living Standard.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import orjson

from exburn.errors import DeadlineExceededError
from exburn.serving.http.body import ClientLeft
from exburn.serving.http.failures import RequestFailure, failure_of
from exburn.serving.http.logs import LOGGER

_END = object()


class Generation:
    """Runs generators, in threads of their own.

    Args:
        most: How many run at once; one more gets 429.
    """

    def __init__(self, most: int, timeout: float):
        self._most, self._timeout, self._running = most, timeout, 0
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="exburn-stream")

    async def parts(
        self, stream: Callable[[dict[str, Any]], Any], request: dict[str, Any]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The parts of an answer, as they come.

        A consumer that goes on slowly, or stops, slows the generator down, or stops it:
        it is closed, as soon as the part that it is at work on is done.
        """
        if self._running >= self._most:
            message = f"{self._most} streams run: try again later"
            raise RequestFailure(429, message, {"retry-after": "1"})
        self._running += 1
        source = _Source(functools.partial(stream, request))
        try:
            await self._limit(self._call(source.begin))
            while True:
                part = source.anext() if source.is_async else self._call(source.next)
                value = await self._limit(part)
                if value is _END:
                    return
                yield _part(value)
        finally:
            self._running -= 1
            await self._leave(source)

    async def _limit(self, waiting: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout):
                return await waiting
        except TimeoutError:
            raise DeadlineExceededError("serving", "a part took too long") from None

    def _call(self, function: Callable[[], Any]) -> Any:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._threads, function)

    async def _leave(self, source: _Source) -> None:
        """Closes a source: here, in a thread, or behind the part at work in one."""
        if not source.leave():
            return
        if source.is_async:
            try:
                await self._limit(source.aclose())
            except Exception as error:
                _log_close(error)
            return

        def close_anyway(closing: Future[None]) -> None:
            if closing.cancelled():
                source.close()

        try:
            self._threads.submit(source.close).add_done_callback(close_anyway)
        except RuntimeError:  # the server ends, and its threads take nothing more
            source.close()

    def end(self) -> None:
        """Takes no more; what is at work in a thread is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Source:
    """The source of one answer: made, drawn and closed by one thread at a time.

    A generator that is at work cannot be closed by another thread. So a client that
    leaves meanwhile only leaves word, and the thread at work closes it afterwards.

    Args:
        make: Makes it: an iterator, an iterable, or an asynchronous iterator.
    """

    def __init__(self, make: Callable[[], Any]):
        self._make = make
        self._iterator: Any = iter(())
        self._lock = threading.Lock()
        self._at_work = self._left = False

    @property
    def is_async(self) -> bool:
        """Says that the event loop draws the parts, not a thread."""
        return hasattr(self._iterator, "__anext__")

    def begin(self) -> None:
        """Calls the function that generates."""

        def begin() -> None:
            source = self._make()
            drawn = hasattr(source, "__anext__") or isinstance(source, Iterator)
            self._iterator = source if drawn else iter(source)

        self._work(begin)

    def next(self) -> Any:
        """The next part, or ``_END``."""
        return self._work(lambda: next(self._iterator, _END))

    async def anext(self) -> Any:
        """The next part of an asynchronous iterator, or ``_END``."""
        await asyncio.sleep(0)  # one that never waits would hold up all other requests
        return await anext(self._iterator, _END)

    def _work(self, function: Callable[[], Any]) -> Any:
        with self._lock:
            if self._left:
                return _END
            self._at_work = True
        try:
            return function()
        finally:
            with self._lock:
                self._at_work, left = False, self._left
            if left:
                self.close()

    def leave(self) -> bool:
        """Takes note that nobody wants parts any more; whether the caller closes it."""
        with self._lock:
            self._left = True
            return not self._at_work

    def close(self) -> None:
        """Runs what the generator does at its end."""
        iterator = self._iterator
        if hasattr(iterator, "__anext__"):  # of a client that left while it was made
            return
        try:
            if callable(close := getattr(iterator, "close", None)):
                close()
        except Exception as error:
            _log_close(error)

    async def aclose(self) -> None:
        """``close`` of an asynchronous iterator."""
        close: Any = getattr(self._iterator, "aclose", None)
        if close is not None:
            await close()


def _log_close(error: Exception) -> None:
    LOGGER.error("a stream failed while it was closed", exc_info=error)


def _part(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"text_output": value}
    if not isinstance(value, dict):
        raise TypeError(f"a part must be a dict or a text, received {value!r}")
    return value


async def write_events(
    parts: AsyncGenerator[dict[str, Any], None], names: dict[str, str]
) -> AsyncGenerator[bytes, None]:
    """Parts as server-sent events; a failure behind the first of them is the last.

    Raises:
        Exception: What the first part raises: then the answer has not begun.
    """

    def write(part: dict[str, Any]) -> bytes:
        return b"data: " + orjson.dumps(names | part, option=_OPTIONS) + b"\n\n"

    first = await anext(parts, None)
    if first is None:
        return
    yield write(first)
    try:
        async for part in parts:
            yield write(part)
    except Exception as error:
        failure = failure_of(error)
        if failure.status == 500:
            LOGGER.error("a stream failed", exc_info=error)
        data = orjson.dumps({"error": failure.message})
        yield b"event: error\ndata: " + data + b"\n\n"


_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


async def send_events(events: AsyncGenerator[bytes, None], send: Any) -> None:
    """Sends server-sent events as an answer.

    Raises:
        Exception: What comes before the first event: it has a status of its own.
    """
    async with contextlib.aclosing(events):
        first = await anext(events, b"")
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
        ]
        start = {"type": "http.response.start", "status": 200, "headers": headers}
        await send(start)
        if first:
            await send(body_part(first, more=True))
        async for event in events:
            await send(body_part(event, more=True))
        await send(body_part(b""))


def body_part(body: bytes, *, more: bool = False) -> dict[str, Any]:
    """A part of an answer's body, as ASGI has it.

    Example:
        >>> body_part(b"so")["more_body"]
        False
    """
    return {"type": "http.response.body", "body": body, "more_body": more}


async def until_left(answer: Awaitable[None], receive: Callable[[], Any]) -> None:
    """Waits for what answers, or gives it up as soon as the client has left.

    Raises:
        ClientLeft: It has.
        Exception: What answering raises.
    """
    answering = asyncio.ensure_future(answer)
    left = asyncio.ensure_future(_leaving(receive))
    try:
        first = asyncio.FIRST_COMPLETED
        await asyncio.wait({answering, left}, return_when=first)
        if not answering.done():
            raise ClientLeft
        await answering
    finally:
        left.cancel()
        if not answering.done():
            answering.cancel()
            await asyncio.wait({answering})


async def _leaving(receive: Callable[[], Any]) -> None:
    """Returns when the client has closed its connection."""
    while (await receive())["type"] == "http.request":
        pass
