"""Metrics for Prometheus: what the server counted, and what its servings did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest

from exburn.serving.http.exchange import Exchange
from exburn.serving.http.health import Health
from exburn.serving.http.registry import Entry, Registry

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
        self._first_token, self._next_tokens = (
            Histogram(name, text, _LABELS, buckets=_SECONDS, registry=self._store)
            for name, text in (
                ("exburn_text_first_token_seconds", "Seconds to a row's first token."),
                ("exburn_text_token_seconds", "Seconds between two of its tokens."),
            )
        )
        self._tokens = Counter(
            "exburn_text_tokens",
            "Tokens that were written.",
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
        self._store.register(_Texts(registry))  # type: ignore[arg-type]
        self._series: dict[Any, Any] = {}
        self._text_series: dict[Any, Any] = {}

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

    def observe_tokens(
        self, entry: Entry, seconds: float, tokens: int, first: bool
    ) -> None:
        """Counts tokens of a row, and the time of each.

        Args:
            first: Whether they are its first, which have a time of their own.
        """
        key = entry.name, entry.version
        series = self._text_series.get(key)
        if series is None:
            times = self._first_token.labels(*key), self._next_tokens.labels(*key)
            series = self._text_series[key] = times, self._tokens.labels(*key)
        (first_times, next_times), count = series
        if first:
            first_times.observe(seconds)
        else:
            next_times.observe(seconds / tokens)
        count.inc(tokens)

    def write(self) -> bytes:
        """All of them, in Prometheus' text format."""
        return generate_latest(self._store)


class _Texts:
    """Collector of what the engines of texts do."""

    def __init__(self, registry: Registry):
        self._registry = registry

    def collect(self) -> Iterator[Any]:
        families = {
            name: (of(f"exburn_text_{name}", text, labels=_LABELS), field)
            for name, (of, text, field) in _OF_ENGINES.items()
        }
        for entry in self._registry:
            if entry.text is None or entry.text.engine is None:
                continue
            statistics = entry.text.engine.statistics()
            for family, field in families.values():
                value = getattr(statistics, field)
                family.add_metric([entry.name, entry.version], value)
        for family, _ in families.values():
            yield family


_OF_ENGINES = {
    "slots": (GaugeMetricFamily, "Texts that are written at once at most.", "slots"),
    "running": (GaugeMetricFamily, "Texts that are written.", "active"),
    "queue": (GaugeMetricFamily, "Texts that wait for a slot.", "queue"),
    "pages": (GaugeMetricFamily, "Pages of the cache.", "pages"),
    "pages_free": (GaugeMetricFamily, "Pages that no text reads.", "pages_free"),
    "pages_kept": (
        GaugeMetricFamily,
        "Free pages that are kept for texts that begin alike.",
        "pages_kept",
    ),
    "prompt_tokens": (CounterMetricFamily, "Tokens of prompts.", "prompt_tokens"),
    "shared_tokens": (
        CounterMetricFamily,
        "Those of them that other texts' pages had.",
        "shared_tokens",
    ),
    "preempted": (
        CounterMetricFamily,
        "How often a text gave its pages back.",
        "preempted",
    ),
}


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
