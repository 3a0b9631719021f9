"""The way from the body of a request to the body of its answer."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np

from exburn.errors import DeadlineExceededError, ServingClosedError
from exburn.serving.answer import Answer
from exburn.serving.http.body import ClientLeft, read_body
from exburn.serving.http.failures import RequestFailure
from exburn.serving.http.limits import RequestMemory, Reservation
from exburn.serving.http.protocol import (
    InferenceRequest,
    encode_answer,
    parse_request,
)
from exburn.serving.http.registry import Entry, Registry
from exburn.serving.server import Serving

# Bytes from which a thread reads a body or writes an answer: meanwhile the loop serves
# others. To change threads takes about 60 µs, as long as reading 30 KB of numbers.
_LARGE = 32 << 10
_AS_TEXT = 8  # bytes in JSON that one of a number takes at most, in bfloat16
_LOOK_OUT_AFTER = 5e-3  # seconds


@dataclasses.dataclass(slots=True)
class Result:
    """An answer as it is sent."""

    body: bytes
    json_length: int | None
    rows: int
    version: str


class Inference:
    """Answers requests for inference."""

    def __init__(
        self,
        registry: Registry,
        memory: RequestMemory,
        *,
        max_body: int,
        max_rows: int | None,
        timeout: float,
        read_timeout: float,
    ):
        self._registry, self.memory = registry, memory
        self._max_body, self._max_rows = max_body, max_rows
        self._timeout, self._read_timeout = timeout, read_timeout
        # Images take so long that they get threads of their own: others' large bodies
        # do not wait behind them.
        self._decoders = ThreadPoolExecutor(
            max((os.cpu_count() or 1) // 2, 1), thread_name_prefix="exburn-images"
        )

    def end(self) -> None:
        """Takes no more images; those that a thread is at are not waited for."""
        self._decoders.shutdown(wait=False, cancel_futures=True)

    async def answer(
        self,
        name: str,
        version: str | None,
        headers: Mapping[bytes, bytes],
        receive: Callable[[], Awaitable[Any]],
        reservation: Reservation | None = None,
    ) -> Result:
        """The answer to one request.

        Args:
            reservation: Of the memory for it, which ends when the answer is sent; by
                default, one that ends with this call.
        """
        if reservation is None:
            with self.memory.reserve() as reservation:
                return await self.answer(name, version, headers, receive, reservation)
        self._registry.get(name, version)  # before a body is read for nothing
        body = await self.read(headers, receive, reservation)
        length = headers.get(b"inference-header-content-length")
        header = None if length is None else length.decode("latin-1")
        with _Leaving(receive, time.monotonic() + self._timeout) as leaving:
            entry, request, output = await self._ask(
                name, version, body, header, reservation, leaving
            )
        if (make := entry.endpoint.answer) is None:
            outputs = entry.signature.unpack(output)
        else:
            large = entry.signature.answer_bytes(request.rows) > _LARGE
            outputs = await _maybe_in_thread(large, make, output, request.parameters)
        size = sum(array.nbytes for array in outputs.values())
        if size > _LARGE:
            reservation.take(size * (1 if request.binary else _AS_TEXT))
            sent = await asyncio.to_thread(_encode, entry, request, outputs)
        else:
            sent = _encode(entry, request, outputs)
        return Result(*sent, request.rows, entry.version)

    async def read(
        self,
        headers: Mapping[bytes, bytes],
        receive: Callable[[], Awaitable[Any]],
        reservation: Reservation,
    ) -> bytes:
        """The body of a request, within the server's limits; see ``read_body``."""
        return await read_body(
            headers,
            receive,
            reservation,
            most=self._max_body,
            seconds=self._read_timeout,
        )

    async def _ask(
        self,
        name: str,
        version: str | None,
        body: bytes,
        header: str | None,
        reservation: Reservation,
        leaving: _Leaving,
    ) -> tuple[Entry, InferenceRequest, Any]:
        while True:
            entry = self._registry.get(name, version)
            if entry.serving is None:
                raise RequestFailure(
                    400, "this model only generates: its route is generate_stream"
                )
            large = len(body) > _LARGE
            try:
                request = await _maybe_in_thread(
                    large, parse_request, body, header, entry.signature, self._max_rows
                )
                leaving.limit(request.timeout)
                if request.files:
                    await self._decode(entry, request, reservation, leaving)
                    large = True
                reservation.take(entry.signature.answer_bytes(request.rows))
                answer = await _maybe_in_thread(
                    large, self._submit, entry, request, leaving, together=not large
                )
                return entry, request, await leaving.wait(entry.serving, answer)
            except ServingClosedError:
                # Unless another model has taken its place meanwhile.
                if self._registry.closed or entry is self._registry.get(name, version):
                    raise

    async def _decode(
        self,
        entry: Entry,
        request: InferenceRequest,
        reservation: Reservation,
        leaving: _Leaving,
    ) -> None:
        """Makes arrays of image files, within the time of the request."""
        arguments = entry.signature, reservation.take, leaving.check
        loop = asyncio.get_running_loop()
        decode = functools.partial(request.decode_images, *arguments)
        try:
            decoding = loop.run_in_executor(self._decoders, decode)
        except RuntimeError:  # they take nothing more
            raise ServingClosedError("serving", "the server is closed") from None
        await decoding

    @staticmethod
    def _submit(
        entry: Entry, request: InferenceRequest, leaving: _Leaving, *, together: bool
    ) -> Answer:
        assert entry.serving is not None
        serving = entry.serving
        submit = serving.submit_together if together else serving.submit
        x = entry.signature.pack(request.inputs)
        return submit(x, timeout=leaving.time_left(), copy=False)


async def _maybe_in_thread(
    threaded: bool, function: Callable[..., Any], *arguments: Any, **options: Any
) -> Any:
    """Calls a function: here, or in a thread if it takes long."""
    if threaded:
        return await asyncio.to_thread(function, *arguments, **options)
    return function(*arguments, **options)


class _Leaving:
    """The end of a request: by its time, or because its client leaves.

    A client that leaves takes it back, unless it is in a batch already. Most answers
    come before it would pay to look out for that.

    Args:
        deadline: ``time.monotonic()`` at which the request fails.
    """

    __slots__ = ("_alarm", "_answer", "_deadline", "_left", "_receive", "_task")

    def __init__(self, receive: Callable[[], Awaitable[Any]], deadline: float):
        self._receive, self._left, self._deadline = receive, False, deadline
        self._answer: Answer | None = None
        self._task: asyncio.Future[Any] | None = None

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._alarm = loop.call_later(_LOOK_OUT_AFTER, self._look_out)
        return self

    def __exit__(self, *error: object) -> None:
        self._alarm.cancel()
        if self._task is not None:
            self._task.cancel()

    def _look_out(self) -> None:
        self._task = asyncio.ensure_future(self._receive())
        self._task.add_done_callback(self._leave)

    def _leave(self, task: asyncio.Future[Any]) -> None:
        if not task.cancelled():
            self._left = True
            if self._answer is not None:
                self._answer.cancel()

    def limit(self, seconds: float | None) -> None:
        """Ends the request sooner, if its caller said so."""
        if seconds is not None:
            self._deadline = min(self._deadline, time.monotonic() + seconds)

    def time_left(self) -> float:
        """Seconds."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise DeadlineExceededError("serving", "the request's time was over")
        return left

    def check(self) -> None:
        """Raises if the request is over; in any thread."""
        if self._left:
            raise ClientLeft
        self.time_left()

    async def wait(self, serving: Serving, answer: Answer) -> Any:
        """The output."""
        self._answer = answer
        if self._left:
            answer.cancel()
        try:
            return await serving.wait_for(answer)
        except asyncio.CancelledError:
            if self._left:
                raise ClientLeft from None
            raise


def _encode(
    entry: Entry, request: InferenceRequest, outputs: Mapping[str, np.ndarray]
) -> tuple[bytes, int | None]:
    return encode_answer(request, outputs, entry.name, entry.version)
