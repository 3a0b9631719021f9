import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from exburn.serving.http.exchange import Exchange
from exburn.serving.http.health import Health
from exburn.serving.http.metrics import Metrics
from exburn.serving.http.registry import Registry
from exburn.serving.options import ServingOptions


def samples(metrics):
    """All values that are not zero, by name and labels."""
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(metrics.write().decode())
        for sample in family.samples
        if sample.value and not sample.name.endswith(("_created", "_bucket"))
    }


def test_they_count_exchanges_and_read_servings(mlp):
    registry = Registry(ServingOptions())
    registry.load("m", mlp)
    metrics = Metrics(registry, Health(registry, within=60))
    for status, rows in ((200, 3), (200, 4), (400, 0)):
        exchange = Exchange("1", "POST", "/", {}, received=10, sent=20)
        exchange.route, exchange.model, exchange.version = "infer", "m", "1"
        exchange.status, exchange.rows = status, rows
        metrics.observe(exchange)
    metrics.observe(Exchange("1", "GET", "/made/up/by/a/caller", {}, status=404))
    before = mlp.statistics()
    mlp.run(np.ones((5, 3), np.float32))
    found = samples(metrics)
    assert found["exburn_http_requests_total", "1", "200", "infer", "m"] == 2
    assert found["exburn_http_requests_total", "1", "400", "infer", "m"] == 1
    assert found["exburn_http_requests_total", "", "", "", "404"] == 1
    assert found["exburn_http_rows_total", "1", "m"] == 7
    assert found["exburn_http_request_seconds_count", "1", "m"] == 3
    assert found[("exburn_http_received_bytes_total",)] == 30
    assert found[("exburn_http_sent_bytes_total",)] == 60
    assert found[("exburn_http_ready",)] == 1
    assert found["exburn_serving_rows_total", "1", "m"] == before.rows + 5
    answered = before.requests["answered"] + 1
    assert found["exburn_serving_requests_total", "1", "answered", "m"] == answered
    assert "made" not in metrics.write().decode()
