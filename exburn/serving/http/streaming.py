"""Answers that come in parts: server-sent events of models that generate.

A model generates if it has a method ``stream(request)`` that yields: a generator, or an
asynchronous one. ``request`` is the JSON object that the client sent. Each part is a
dict, or a text, which stands for ``{"text_output": text}``.

Source: *Generate extension*, Triton; *Server-sent events*, HTML Living Standard.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson

from exburn.errors import DeadlineExceededError
from exburn.serving.http.failures import RequestFailure, failure_of
from exburn.serving.http.logs import LOGGER

__all__ = ["Generation", "write_events"]

_END = object()


class Generation:
    """Runs generators, in threads of their own.

    Args:
        most: How many run at once; one more gets 429.
        timeout: Seconds for each part.
    """

    def __init__(self, most: int, timeout: float):
        self._most, self._timeout, self._running = most, timeout, 0
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="exburn-stream")

    async def parts(
        self, stream: Callable[[dict[str, Any]], Any], request: dict[str, Any]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The parts of an answer, as they come.

        A consumer that goes on slowly, or stops, slows the generator down, or stops it.

        Raises:
            RequestFailure: Too many run.
            DeadlineExceededError: A part did not come in time.
            TypeError: A part is no dict and no text.
        """
        if self._running >= self._most:
            message = f"{self._most} streams run: try again later"
            raise RequestFailure(429, message, {"retry-after": "1"})
        self._running += 1
        try:
            async with contextlib.aclosing(self._draw(stream, request)) as values:
                async for value in values:
                    yield _part(value)
        finally:
            self._running -= 1

    async def _draw(
        self, stream: Callable[[dict[str, Any]], Any], request: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        source = await self._limit(self._call(_begin, stream, request))
        try:
            while True:
                if isinstance(source, Iterator):
                    part = self._call(next, source, _END)
                else:
                    part = anext(source, _END)
                value = await self._limit(part)
                if value is _END:
                    return
                yield value
        finally:
            await self._close(source)

    async def _limit(self, waiting: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout):
                return await waiting
        except TimeoutError:
            raise DeadlineExceededError("serving", "a part took too long") from None

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._threads, function, *arguments)

    async def _close(self, source: Any) -> None:
        """Ends a generator that may still be at work in its thread."""
        if inspect.isasyncgen(source):
            await source.aclose()
        elif inspect.isgenerator(source):
            # One of a thread cannot be closed by another one: behind it, in the queue.
            self._threads.submit(_close_later, source)

    def end(self) -> None:
        """Takes no more; what is at work in a thread is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _begin(stream: Callable[[dict[str, Any]], Any], request: dict[str, Any]) -> Any:
    source = stream(request)
    if hasattr(source, "__anext__"):
        return source
    return source if isinstance(source, Iterator) else iter(source)


def _close_later(source: Any) -> None:
    with contextlib.suppress(ValueError):  # it is still at work: it runs to its end
        source.close()


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

    Args:
        parts: The parts.
        names: What each of them tells of the model.

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
