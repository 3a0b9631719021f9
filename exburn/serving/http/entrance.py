"""The way in and out of every request: its id, whom it is for, its key, its record."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
from collections.abc import Awaitable, Callable, Container, Iterator, MutableMapping
from typing import Any

import orjson
from starlette.exceptions import HTTPException

from exburn.serving.http.body import ClientLeft, discard_body, is_complete
from exburn.serving.http.exchange import Exchange
from exburn.serving.http.failures import RequestFailure, describe_failure, failure_of
from exburn.serving.http.health import Health
from exburn.serving.http.limits import ApiKeys, Rate
from exburn.serving.http.logs import LOGGER, request_id
from exburn.serving.http.origins import Hosts, Origins

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class Entrance:
    """An ASGI application in front of the routes.

    Args:
        open_paths: What everybody may ask for. (The page holds nothing, and asks for a
            key itself; probes of orchestrators have none.)
        keys: Who may ask for the rest.
        hosts, origins: Under which names it is asked, and by which pages.
        observers: Called with every ``Exchange`` when it is over.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        open_paths: Container[str],
        keys: ApiKeys,
        rate: Rate | None,
        health: Health,
        hosts: Hosts,
        origins: Origins,
        observers: tuple[Callable[[Exchange], None], ...] = (),
        tracer: Any = None,
    ):
        self._app, self._open, self._keys, self._rate = app, open_paths, keys, rate
        self._health, self._observers, self._tracer = health, observers, tracer
        self._hosts, self._origins = hosts, origins

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
        receive = _follow(exchange, receive)
        send = self._record(exchange, receive, send)
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
            preflight = self._origins.preflight(exchange.method, exchange.headers)
            if preflight is None:
                self._check_key(exchange)
                await self._app(scope, receive, send)
            else:
                await _send(send, 204, preflight)
        except ClientLeft:
            pass
        except asyncio.CancelledError:  # the server ends, and has waited long enough
            if exchange.status == 499:
                await _fail(
                    exchange, RequestFailure(503, "the server is closing"), send
                )
            raise
        except Exception as error:
            failure = _failure(error)
            if failure.status == 500:
                exchange.error = error
            if exchange.status != 499:  # part of the answer is out: cut it off
                raise
            await _fail(exchange, failure, send)
        finally:
            for observe in self._observers:
                observe(exchange)

    def _admit(self, exchange: Exchange, scope: MutableMapping[str, Any]) -> None:
        client = scope.get("client")
        exchange.caller = client[0] if client else ""
        self._hosts.check(scope["headers"], scope.get("server"))
        exchange.added = self._origins.check(exchange.headers)

    def _check_key(self, exchange: Exchange) -> None:
        if exchange.path in self._open:
            return
        if self._keys:
            exchange.caller = self._keys.check(exchange.headers)
        if self._rate is not None:
            self._rate.take(exchange.caller)

    def _record(self, exchange: Exchange, receive: Receive, send: Send) -> Send:
        """``send`` that adds headers, and keeps what the record needs.

        An answer to a request that is not all there is the connection's last: what is
        left of the body would be in the way of the next. Its sender may not look for an
        answer before all is sent, so some of it is read before the answer ends.
        """
        early = False

        async def record(message: Message) -> None:
            nonlocal early
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                early = not (exchange.read or await is_complete(receive, exchange))
                headers = [*message.get("headers", ()), *exchange.added]
                headers.append((b"x-request-id", exchange.id.encode()))
                if self._health.draining or early:
                    headers.append((b"connection", b"close"))
                message["headers"] = headers
            else:
                exchange.sent += len(message.get("body", b""))
                if early and not message.get("more_body"):
                    await send({**message, "more_body": True})
                    await discard_body(receive)
                    message = {"type": "http.response.body", "body": b""}
            await send(message)

        return record


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


async def _fail(exchange: Exchange, failure: RequestFailure, send: Send) -> None:
    openai = exchange.path.startswith("/v1/")
    value = describe_failure(failure) if openai else {"error": failure.message}
    body = orjson.dumps(value)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *(
            (k.encode("latin-1"), v.encode("latin-1"))
            for k, v in failure.headers.items()
        ),
    ]
    await _send(send, failure.status, headers, body)


async def _send(send: Send, status: int, headers: Any, body: bytes = b"") -> None:
    start = {"type": "http.response.start", "status": status, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": body})


def make_tracer() -> _Tracer | None:
    """Makes spans of requests; ``None`` without OpenTelemetry."""
    if importlib.util.find_spec("opentelemetry") is None:
        return None
    return _Tracer()


class _Tracer:
    def __init__(self):
        from opentelemetry import propagate, trace

        self._trace, self._propagate = trace, propagate
        self._tracer = trace.get_tracer("exburn.serving")

    @contextlib.contextmanager
    def span(self, exchange: Exchange) -> Iterator[None]:
        """The span of a request, with its outcome as attributes."""
        trace, kind = self._trace, self._trace.SpanKind.SERVER
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            yield  # nobody collects them
            return
        headers = exchange.headers
        if b"traceparent" in headers:
            names = ("traceparent", "tracestate", "baggage")
            carrier = {n: headers.get(n.encode(), b"").decode("latin-1") for n in names}
            context = self._propagate.extract(carrier)
        else:
            context = None
        span = self._tracer.start_span(exchange.method, context, kind=kind)
        try:
            with trace.use_span(span, record_exception=False):
                yield
        finally:
            if span.is_recording():
                self._describe(span, exchange)
            span.end()

    def _describe(self, span: Any, exchange: Exchange) -> None:
        if exchange.route:
            span.update_name(f"{exchange.method} {exchange.route}")
        attributes = {
            "http.request.method": exchange.method,
            "url.path": exchange.path,
            "http.response.status_code": exchange.status,
            "http.request.body.size": exchange.received,
            "http.response.body.size": exchange.sent,
            "exburn.request_id": exchange.id,
            "exburn.model": exchange.model,
            "exburn.version": exchange.version,
            "exburn.rows": exchange.rows,
        }
        span.set_attributes(attributes)
        if exchange.error is not None:
            span.record_exception(exchange.error)
        if exchange.status >= 500:
            span.set_status(self._trace.StatusCode.ERROR)
