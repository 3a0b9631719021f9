import asyncio
import importlib.util

import pytest

from exburn.serving.http.exchange import Exchange
from exburn.serving.http.tracing import make_tracer

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
