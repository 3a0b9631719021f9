"""Reading bodies, within their limits."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson

from exburn.serving.http.exchange import Exchange
from exburn.serving.http.failures import RequestFailure
from exburn.serving.http.limits import Reservation

Receive = Callable[[], Awaitable[Any]]

# Of a body that is refused: what is read and thrown away, so that its sender reads the
# answer instead of a reset of the connection.
_MOST_DISCARDED, _DISCARD_SECONDS = 16 << 20, 2.0
_WINDOW = {"gzip": 31, "deflate": 15}  # for zlib


class ClientLeft(Exception):
    """The connection was closed before the request was there, or before the answer."""


async def read_body(
    headers: Mapping[bytes, bytes],
    receive: Receive,
    reservation: Reservation,
    *,
    most: int,
    seconds: float,
) -> bytes:
    """The body of a request.

    Args:
        reservation: Grows by what is read.
        most: Bytes that it may have, decompressed, too.
        seconds: Time that its sender has.

    Raises:
        RequestFailure: 413, as soon as it is known to be too long; 408 for a sender who
            is too slow; 400 and 415 for what cannot be decompressed; 503 where memory
            is short.
    """
    length = headers.get(b"content-length")
    if length is not None and length.isdigit() and int(length[:20]) > most:
        raise _too_long(most)
    try:
        async with asyncio.timeout(seconds):
            body = await _receive(receive, reservation, most)
    except TimeoutError:
        raise RequestFailure(
            408, f"the body took longer than {seconds:g} seconds"
        ) from None
    encoding = headers.get(b"content-encoding")
    if encoding is None or encoding == b"identity":
        return body
    name = encoding.decode("latin-1").strip().lower()
    plain = await asyncio.to_thread(_decompress, body, name, most)
    reservation.grow(len(plain))
    return plain


async def _receive(receive: Receive, reservation: Reservation, most: int) -> bytes:
    message = await receive()
    if not message.get("more_body") and message["type"] == "http.request":
        body = message.get("body", b"")  # all of it, as for most requests
        if len(body) > most:
            raise _too_long(most)
        reservation.grow(len(body))
        return body
    parts, size = [], 0
    while True:
        if message["type"] != "http.request":
            raise ClientLeft
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise _too_long(most)
        reservation.grow(len(part))
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)
        message = await receive()


def _too_long(most: int) -> RequestFailure:
    return RequestFailure(413, f"a body may have {most} bytes")


def _decompress(body: bytes, encoding: str, most: int) -> bytes:
    window = _WINDOW.get(encoding)
    if window is None:
        raise RequestFailure(415, "bodies may be compressed by gzip or deflate alone")
    reader = zlib.decompressobj(window)
    try:
        plain = reader.decompress(body, most + 1)
    except zlib.error as error:
        raise RequestFailure(400, f"the body is no {encoding}: {error}") from None
    if len(plain) > most:
        raise _too_long(most)
    if not reader.eof or reader.unused_data:
        raise RequestFailure(400, f"the body is cut off, or more than one {encoding}")
    return plain


def parse_object(text: bytes) -> dict[str, Any]:
    """The JSON object in a body."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RequestFailure(400, f"the body is no JSON: {error}") from None
    if type(value) is not dict:
        raise RequestFailure(400, "the body must be a JSON object")
    return value


async def is_complete(receive: Receive, exchange: Exchange) -> bool:
    """Tells whether all of a request is there; reads what is, and waits for none."""
    headers = exchange.headers
    if b"transfer-encoding" not in headers and not headers.get(b"content-length"):
        return True
    if b"expect" in headers and not exchange.received:
        return False  # to read would be to ask for it
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0):
            while not exchange.read:
                if (await receive())["type"] != "http.request":
                    return True  # nobody sends the rest
    return exchange.read


async def discard_body(receive: Receive) -> None:
    """Reads what its sender still sends, up to a bound, and forgets it."""
    left = _MOST_DISCARDED
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_SECONDS):
            while left > 0:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body"):
                    return
                left -= len(message.get("body", b""))
