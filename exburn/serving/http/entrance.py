"""The way in and out of every request: its id, its key, its rate, its record."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson
from starlette.exceptions import HTTPException

from exburn.serving.http.body import MOST_DISCARDED, ClientLeft, discard_body
from exburn.serving.http.exchange import Exchange
from exburn.serving.http.failures import RequestFailure, failure_of
from exburn.serving.http.health import Health
from exburn.serving.http.limits import Keys, Rate
from exburn.serving.http.logs import LOGGER, request_id

__all__ = ["Entrance"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

# The page holds nothing, and asks for a key itself; probes of orchestrators have none.
_OPEN = ("/", "/v2/health/live", "/v2/health/ready")


class Entrance:
    """An ASGI application in front of the routes.

    Args:
        app: The routes.
        keys: Who may ask.
        rate: How often, or ``None``.
        health: Says when the server is about to end.
        observers: Called with every ``Exchange`` when it is over.
        tracer: Makes spans, or ``None``.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: Keys,
        rate: Rate | None,
        health: Health,
        observers: tuple[Callable[[Exchange], None], ...] = (),
        tracer: Any = None,
    ):
        self._app, self._keys, self._rate = app, keys, rate
        self._health, self._observers, self._tracer = health, observers, tracer

    async def __call__(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send
    ) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        exchange = Exchange(request_id(headers), scope["method"], path, headers)
        scope["exburn.exchange"] = exchange
        receive, send = _follow(exchange, receive), self._record(exchange, send)
        if self._tracer is None:
            await self._answer(exchange, scope, receive, send)
        else:
            with self._tracer.span(exchange):
                await self._answer(exchange, scope, receive, send)

    async def _answer(
        self,
        exchange: Exchange,
        scope: MutableMapping[str, Any],
        receive: Receive,
        send: Send,
    ) -> None:
        try:
            self._admit(exchange, scope)
            await self._app(scope, receive, send)
        except ClientLeft:
            pass
        except asyncio.CancelledError:  # the server ends, and has waited long enough
            if exchange.status == 499:
                await _fail(RequestFailure(503, "the server is closing"), send)
            raise
        except Exception as error:
            failure = _failure(error)
            if failure.status == 500:
                exchange.error = error
            if exchange.status != 499:  # part of the answer is out: cut it off
                raise
            await self._refuse(exchange, failure, receive, send)
        finally:
            for observe in self._observers:
                observe(exchange)

    def _admit(self, exchange: Exchange, scope: MutableMapping[str, Any]) -> None:
        client = scope.get("client")
        exchange.caller = client[0] if client else ""
        if exchange.path in _OPEN:
            return
        if self._keys:
            exchange.caller = self._keys.check(exchange.headers)
        if self._rate is not None:
            self._rate.take(exchange.caller)

    def _record(self, exchange: Exchange, send: Send) -> Send:
        """``send`` that adds headers, and keeps what the record needs."""

        async def record(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                headers = list(message.get("headers", ()))
                headers.append((b"x-request-id", exchange.id.encode()))
                if self._health.draining:
                    headers.append((b"connection", b"close"))
                message["headers"] = headers
            else:
                exchange.sent += len(message.get("body", b""))
            await send(message)

        return record

    async def _refuse(
        self, exchange: Exchange, failure: RequestFailure, receive: Receive, send: Send
    ) -> None:
        """Sends a failure, whether or not the body has been read."""
        length = _body_length(exchange)
        if exchange.read or length == 0:
            await _fail(failure, send)
            return
        # Its sender may not look for an answer before all is sent.
        await _fail(failure, send, more=True, close=length > MOST_DISCARDED)
        await discard_body(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _failure(error: Exception) -> RequestFailure:
    if isinstance(error, HTTPException):  # of the routes
        message = "there is nothing here" if error.status_code == 404 else error.detail
        return RequestFailure(error.status_code, message, dict(error.headers or {}))
    failure = failure_of(error)
    if failure.status == 500:
        LOGGER.error("a request failed", exc_info=error)
    return failure


def _follow(exchange: Exchange, receive: Receive) -> Receive:
    """``receive`` that notes how much of the body has come."""

    async def follow() -> Message:
        message = await receive()
        if message["type"] == "http.request":
            exchange.received += len(message.get("body", b""))
            exchange.read = not message.get("more_body", False)
        return message

    return follow


def _body_length(exchange: Exchange) -> float:
    """Bytes of the body; infinite where the headers do not say."""
    if b"transfer-encoding" in exchange.headers:
        return math.inf
    length = exchange.headers.get(b"content-length", b"0")
    return int(length[:20]) if length.isdigit() else math.inf


async def _fail(
    failure: RequestFailure, send: Send, *, more: bool = False, close: bool = False
) -> None:
    body = orjson.dumps({"error": failure.message})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *(
            (k.encode("latin-1"), v.encode("latin-1"))
            for k, v in failure.headers.items()
        ),
    ]
    if close:
        headers.append((b"connection", b"close"))
    await send(
        {
            "type": "http.response.start",
            "status": failure.status,
            "headers": headers,
        }
    )
    await send({"type": "http.response.body", "body": body, "more_body": more})
