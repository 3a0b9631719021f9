"""Traces for OpenTelemetry, where its package is installed.

Who wants traces sets up an exporter, as for any program (``opentelemetry-sdk``). A
request that comes with ``traceparent`` goes on with the trace that it names.

Source: OpenTelemetry, *Semantic conventions for HTTP spans*.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import Any

from exburn.serving.http.exchange import Exchange

__all__ = ["make_tracer"]


def make_tracer() -> _Tracer | None:
    """What makes a span of each request; ``None`` without OpenTelemetry."""
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
