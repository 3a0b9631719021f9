"""From the body of a request to the body of its answer."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self

import numpy as np

from exburn.errors import ServingClosedError
from exburn.serving.answer import Answer
from exburn.serving.http.body import ClientLeft, read_body
from exburn.serving.http.failures import RequestFailure
from exburn.serving.http.limits import Memory, Reservation
from exburn.serving.http.protocol import (
    InferenceRequest,
    encode_answer,
    parse_request,
)
from exburn.serving.http.registry import Entry, Registry
from exburn.serving.server import Serving

__all__ = ["Inference", "Result"]

# Bytes from which a thread reads a body or writes an answer: meanwhile the loop serves
# others. To change threads takes about 60 µs, as long as reading 30 KB of numbers.
_LARGE = 32 << 10
_FILE = 1 << 10  # bytes of an image: to decode it takes longer than to read numbers
_LOOK_OUT_AFTER = 5e-3  # seconds


@dataclasses.dataclass(slots=True)
class Result:
    """An answer as it is sent."""

    body: bytes
    json_length: int | None
    rows: int
    version: str


class Inference:
    """Answers requests for inference.

    Args:
        registry: The models.
        memory: What requests under way may take.
        max_body: Most bytes of a body.
        max_rows: Most rows of a request, or ``None``.
        timeout: Seconds for an answer.
        read_timeout: Seconds that a body may take.

    Attributes:
        memory: As given.
    """

    def __init__(
        self,
        registry: Registry,
        memory: Memory,
        *,
        max_body: int,
        max_rows: int | None,
        timeout: float,
        read_timeout: float,
    ):
        self._registry, self.memory = registry, memory
        self._max_body, self._max_rows = max_body, max_rows
        self._timeout, self._read_timeout = timeout, read_timeout

    async def answer(
        self,
        name: str,
        version: str | None,
        headers: Mapping[bytes, bytes],
        receive: Callable[[], Awaitable[Any]],
    ) -> Result:
        """The answer to one request.

        Raises:
            RequestFailure: It is refused.
            ClientLeft: Nobody waits for it any more.
            ExBurnError: As of ``Serving.arun``.
        """
        self._registry.get(name, version)  # before a body is read for nothing
        with self.memory.reserve() as reservation:
            body = await self.read(headers, receive, reservation)
            length = headers.get(b"inference-header-content-length")
            header = None if length is None else length.decode("latin-1")
            with _Leaving(receive) as leaving:
                entry, request, output = await self._ask(
                    name, version, body, header, reservation, leaving
                )
            outputs = entry.signature.unpack(output)
            if sum(array.nbytes for array in outputs.values()) > _LARGE:
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
            try:
                arguments = entry, body, header, reservation
                if len(body) > _LARGE or (entry.signature.images and len(body) > _FILE):
                    submit = entry.serving.submit
                    request, answer = await asyncio.to_thread(
                        self._submit, submit, *arguments
                    )
                else:
                    submit = entry.serving.submit_together
                    request, answer = self._submit(submit, *arguments)
                return entry, request, await leaving.wait(entry.serving, answer)
            except ServingClosedError:
                # Unless another model has taken its place meanwhile.
                if self._registry.closed or entry is self._registry.get(name, version):
                    raise

    def _submit(
        self,
        submit: Callable[..., Answer],
        entry: Entry,
        body: bytes,
        header: str | None,
        reservation: Reservation,
    ) -> tuple[InferenceRequest, Answer]:
        request = parse_request(
            body, header, entry.signature, self._max_rows, reservation.take
        )
        timeout = self._timeout
        if request.timeout is not None:
            timeout = min(timeout, request.timeout)
        x = entry.signature.pack(request.inputs)
        return request, submit(x, timeout=timeout, copy=False)


class _Leaving:
    """Takes a request back if its client leaves before it is in a batch.

    Most answers come before it would pay to look out for that.
    """

    __slots__ = ("_alarm", "_answer", "_left", "_receive", "_task")

    def __init__(self, receive: Callable[[], Awaitable[Any]]):
        self._receive, self._left = receive, False
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

    async def wait(self, serving: Serving, answer: Answer) -> Any:
        """The output.

        Raises:
            ClientLeft: Nobody waits for it any more.
        """
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
