"""exburn.benchmark: of the machine, and of a model."""

import time

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.diagnostics.benchmark import BenchmarkTimes
from exburn.errors import ArgumentError, DataError


@pytest.mark.usefixtures("cpu_only")
def test_the_machine():
    report = exburn.benchmark(size=64, iterations=3, dtypes=["float32", "bfloat16"])
    assert [row["dtype"] for row in report.rows] == ["float32", "bfloat16"]
    for row in report.rows:
        assert row["gflops"] == pytest.approx(2 * 64**3 / row["time_ms"] / 1e6)
        assert row["softmax_ms"] > 0 and row["softmax_to_host_ms"] > 0
    assert report.gflops == max(row["gflops"] for row in report.rows)
    assert "64 × 64" in str(report) and "bfloat16" in str(report)


def test_the_times_are_those_of_the_runs():
    pauses = iter([0.5, 0.0, 0.02, 0.2])  # the first two are the warm-up

    def model(x):
        time.sleep(next(pauses))
        return x

    report = exburn.benchmark(model, np.ones((10, 1)), warmup=2, runs=2)
    assert (report.runs, report.warmup, report.rows) == (2, 2, 10)
    assert 20 <= report.min_ms < 200 <= report.max_ms < 500
    assert report.avg_ms == pytest.approx((report.min_ms + report.max_ms) / 2)
    assert report.rows_per_second == pytest.approx(1e4 / report.median_ms)
    assert "model, 10 rows" in str(report)
    with pytest.raises(AttributeError):
        _ = report.nothing


def test_statistics_are_numpys():
    seconds = np.array([5, 1, 3, 2, 9]) / 1e3
    timing = BenchmarkTimes.of(seconds)
    assert timing.std_ms == pytest.approx(np.std([5, 1, 3, 2, 9]))
    assert timing.median_ms == pytest.approx(3)
    assert timing.p95_ms == pytest.approx(np.percentile([5, 1, 3, 2, 9], 95))


def test_a_model_is_timed_built_or_not():
    model = exburn.Sequential([exburn.Input((4,)), layers.Dense(3)])
    report = exburn.benchmark(model, np.ones((16, 4)), warmup=1, runs=5)
    assert (report.rows, report.runs) == (16, 5)
    unbuilt = exburn.Sequential([layers.Dense(3)])
    assert exburn.benchmark(unbuilt, np.ones((2, 4)), runs=1).rows == 2
    with pytest.raises(DataError):
        exburn.benchmark(model, np.ones((0, 4)))


def test_arguments_are_checked():
    with pytest.raises(ArgumentError, match="together"):
        exburn.benchmark(lambda x: x)
    for name in ("size", "iterations"):
        with pytest.raises(ArgumentError, match=name):
            exburn.benchmark(**{name: 0})
    with pytest.raises(ArgumentError, match="runs"):
        exburn.benchmark(lambda x: x, np.ones(1), runs=0)
