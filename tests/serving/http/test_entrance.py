import asyncio
import importlib.util

import pytest
from starlette.exceptions import HTTPException

from exburn.errors import DataError, QueueFullError
from exburn.serving.http.body import ClientLeft
from exburn.serving.http.entrance import Entrance, make_tracer
from exburn.serving.http.exchange import Exchange
from exburn.serving.http.failures import RequestFailure
from exburn.serving.http.health import Health
from exburn.serving.http.limits import ApiKeys, Rate
from exburn.serving.http.origins import Hosts, Origins

OPEN = {"/", "/v2/health/live", "/v2/health/ready"}

KEY = "a-key-of-sixteen"
POST = {"type": "http", "method": "POST", "path": "/v2", "client": ("9.9.9.9", 1)}


async def greet(scope, receive, send):
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def failing(error):
    async def fail(scope, receive, send):
        raise error

    return fail


class Call:
    """One request to an entrance: what was sent, and what was seen."""

    def __init__(
        self, app, headers=(), parts=(b"",), keys=(), rate=None, drain=False, **scope
    ):
        seen, health = [], Health([], 1)
        health.draining = drain
        entrance = Entrance(
            app,
            open_paths=OPEN,
            keys=ApiKeys(keys),
            rate=rate,
            health=health,
            hosts=Hosts("127.0.0.1"),
            origins=Origins(),
            observers=(seen.append,),
        )
        self.parts = list(parts)
        self.sent = []
        headers = [(k.encode(), v.encode()) for k, v in dict(headers).items()]
        self.scope = {**POST, "headers": headers, **scope}
        try:
            asyncio.run(entrance(self.scope, self.receive, self.send))
        finally:
            (self.exchange,) = seen

    async def receive(self):
        body = self.parts.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(self.parts)}

    async def send(self, message):
        self.sent.append(message)

    @property
    def status(self):
        return self.sent[0]["status"]

    @property
    def headers(self):
        return {k.decode(): v.decode() for k, v in self.sent[0]["headers"]}

    @property
    def body(self):
        return b"".join(message["body"] for message in self.sent[1:])


def test_what_passes_is_recorded():
    call = Call(greet, {"x-request-id": "abc", "content-length": "3"}, [b"123"])
    assert call.body == b"hello" and call.headers == {"x-request-id": "abc"}
    exchange = call.exchange
    assert (exchange.status, exchange.received, exchange.sent) == (200, 3, 5)
    assert (exchange.id, exchange.caller) == ("abc", "9.9.9.9")


def test_a_server_that_ends_has_connections_closed():
    assert Call(greet, drain=True).headers["connection"] == "close"


def test_keys_are_asked_for_but_not_by_probes():
    assert Call(greet, keys=[KEY]).status == 401
    call = Call(greet, {"x-api-key": KEY}, keys=[KEY])
    assert call.status == 200 and len(call.exchange.caller) == 8
    for path, status in (
        ("/v2/health/live", 200),
        ("/v2/health/ready", 200),
        ("/", 200),
        ("/metrics", 401),
        ("/openapi.json", 401),
        ("/v2/health/ready/", 401),
        ("//v2/health/ready", 401),
    ):
        assert Call(greet, keys=[KEY], path=path).status == status, path
        behind = {"path": "/models" + path, "root_path": "/models"}  # a prefix
        call = Call(greet, keys=[KEY], **behind)
        assert (call.status, call.exchange.path) == (status, path)


def test_rates_are_by_key_or_address():
    rate = Rate(1)
    assert [Call(greet, rate=rate).status for _ in range(2)] == [200, 429]
    assert Call(greet, rate=rate, client=("8.8.8.8", 1)).status == 200
    assert Call(greet, rate=rate, client=None).status == 200


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RequestFailure(413, "too long", {"a": "b"}), 413),
        (QueueFullError("serving", "full"), 429),
        (DataError("serving", "wrong"), 400),
        (HTTPException(405, headers={"allow": "GET"}), 405),
        (ZeroDivisionError("secret"), 500),
    ],
)
def test_errors_are_json_with_the_requests_id(error, status):
    call = Call(failing(error))
    assert call.status == status and call.body.startswith(b'{"error":')
    assert b"secret" not in call.body and b"Traceback" not in call.body
    assert len(call.headers["x-request-id"]) == 16
    assert (call.exchange.error is error) == (status == 500)


class Drip(Call):
    """A call whose body comes in parts with pauses between them."""

    async def receive(self):
        await asyncio.sleep(0.001)
        return await super().receive()


async def greet_unread(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@pytest.mark.parametrize(
    "app", [failing(RequestFailure(413, "too long")), greet_unread], ids=["413", "200"]
)
@pytest.mark.parametrize(
    "headers", [{"content-length": "4"}, {"transfer-encoding": "chunked"}]
)
def test_an_answer_before_all_of_its_request_is_the_last(app, headers):
    whole = Call(app, headers, [b"ab", b"cd"])  # all of it is there already
    assert "connection" not in whole.headers and len(whole.sent) == 2
    call = Drip(app, headers, [b"ab", b"cd"])
    assert call.headers["connection"] == "close"
    assert call.parts == [] and call.body  # it was read behind the answer
    assert [m.get("more_body", False) for m in call.sent[1:]] == [True, False]
    assert "connection" not in Call(app, {}, []).headers


def test_an_answer_that_fails_half_way_is_cut_off():
    async def half(scope, receive, send):
        await greet(scope, receive, send)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Call(half)


def test_who_leaves_is_told_nothing():
    call = Call(failing(ClientLeft()))
    assert call.sent == [] and call.exchange.status == 499


def test_a_task_that_is_cancelled_says_so():
    class Cancelled(Call):
        def __init__(self):
            try:
                super().__init__(failing(asyncio.CancelledError()))
            except asyncio.CancelledError:
                pass

    assert Cancelled().status == 503


TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def spans(monkeypatch):
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
        InMemorySpanExporter,
    )

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter.get_finished_spans


def test_a_request_is_a_span_of_the_trace_that_it_names(spans):
    headers = {b"traceparent": f"00-{TRACE}-{PARENT}-01".encode()}
    exchange = Exchange("7", "POST", "/v2/models/m/infer", headers)
    tracer = make_tracer()
    assert tracer is not None
    with tracer.span(exchange):
        exchange.route, exchange.model, exchange.status = "infer", "m", 200
    failed = Exchange("8", "POST", "/", {b"traceparent": b"\xff nonsense"})
    with pytest.raises(asyncio.CancelledError), tracer.span(failed):
        failed.status, failed.error = 500, ValueError("wrong")
        raise asyncio.CancelledError
    first, second = spans()
    assert f"{first.context.trace_id:x}" == TRACE.lstrip("0")
    assert f"{first.parent.span_id:x}" == PARENT
    assert first.name == "POST infer"
    assert first.attributes["exburn.model"] == "m"
    assert first.attributes["http.response.status_code"] == 200
    assert second.parent is None and not second.status.is_ok
    assert [event.name for event in second.events] == ["exception"]


def test_without_a_collector_or_without_the_package_there_are_none(monkeypatch):
    if (tracer := make_tracer()) is not None:
        monkeypatch.setattr(tracer, "_tracer", None)
        with tracer.span(Exchange("7", "GET", "/", {})):
            pass
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert make_tracer() is None
