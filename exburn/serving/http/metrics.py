"""Metrics for Prometheus: what the server counted, and what its servings did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest

from exburn.serving.http.exchange import Exchange
from exburn.serving.http.health import Health
from exburn.serving.http.registry import Registry

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_LABELS = ["model", "version"]


class Metrics:
    """Counts every exchange, and reads the servings when it is asked.

    Names that requests make up are counted without a name: each would be a new series.
    """

    def __init__(self, registry: Registry, health: Health):
        self._store = CollectorRegistry()
        self._requests = Counter(
            "exburn_http_requests",
            "Requests by model, route and status; 499: the client left.",
            [*_LABELS, "route", "status"],
            registry=self._store,
        )
        self._seconds = Histogram(
            "exburn_http_request_seconds",
            "Seconds from a request's headers to the end of its answer.",
            _LABELS,
            buckets=_SECONDS,
            registry=self._store,
        )
        self._rows = Counter(
            "exburn_http_rows",
            "Rows of the requests that were answered.",
            _LABELS,
            registry=self._store,
        )
        self._received = Counter(
            "exburn_http_received_bytes",
            "Bytes of the bodies of requests.",
            registry=self._store,
        )
        self._sent = Counter(
            "exburn_http_sent_bytes",
            "Bytes of the bodies of answers.",
            registry=self._store,
        )
        Gauge(
            "exburn_http_ready",
            "Whether the server is ready.",
            registry=self._store,
        ).set_function(lambda: float(health.all_ready()))
        self._store.register(_Servings(registry, health))  # type: ignore[arg-type]
        self._series: dict[Any, Any] = {}

    def observe(self, exchange: Exchange) -> None:
        """Counts an exchange that is over."""
        key = exchange.model, exchange.version, exchange.route, exchange.status
        series = self._series.get(key)
        if series is None:  # to look labels up takes longer than to count
            model, infers = key[:2], key[2] == "infer"
            series = self._series[key] = (
                self._requests.labels(*model, key[2], str(key[3])),
                (self._seconds.labels(*model), self._rows.labels(*model))
                if infers
                else None,
            )
        requests, inference = series
        requests.inc()
        if inference is not None:
            inference[0].observe(exchange.seconds)
            inference[1].inc(exchange.rows)
        self._received.inc(exchange.received)
        self._sent.inc(exchange.sent)

    def write(self) -> bytes:
        """All of them, in Prometheus' text format."""
        return generate_latest(self._store)


class _Servings:
    """Collector of what the servings counted."""

    def __init__(self, registry: Registry, health: Health):
        self._registry, self._health = registry, health

    def collect(self) -> Iterator[Any]:
        gauges = {
            name: GaugeMetricFamily(f"exburn_serving_{name}", text, labels=_LABELS)
            for name, text in {
                "queue_depth": "Requests that wait.",
                "rows_waiting": "Rows that wait.",
                "fill": "Mean share of a batch that is filled with rows.",
                "canary_age_seconds": "Seconds since the last canary came back.",
            }.items()
        }
        counters = {
            name: CounterMetricFamily(f"exburn_serving_{name}", text, labels=_LABELS)
            for name, text in {
                "batches": "Batches that ran.",
                "calls": "Calls of programs that ran them.",
                "rows": "Rows in them.",
            }.items()
        }
        requests = CounterMetricFamily(
            "exburn_serving_requests",
            "Requests by what became of them.",
            labels=[*_LABELS, "outcome"],
        )
        for entry in self._registry:
            if entry.serving is None:
                continue
            labels = [entry.name, entry.version]
            statistics = entry.serving.statistics()
            for name, gauge in gauges.items():
                age = name == "canary_age_seconds"
                value = self._health.age(entry) if age else getattr(statistics, name)
                gauge.add_metric(labels, value)
            for name, counter in counters.items():
                counter.add_metric(labels, getattr(statistics, name))
            for outcome, count in statistics.requests.items():
                requests.add_metric([*labels, outcome], count)
        yield from gauges.values()
        yield from counters.values()
        yield requests
