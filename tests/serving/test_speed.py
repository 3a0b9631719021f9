"""How fast it is beside predict: benchmarks/serving.py, in small."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(FOLDER))  # it imports its neighbours
    try:
        spec = importlib.util.spec_from_file_location(
            "serving_benchmark", FOLDER / "serving.py"
        )
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(FOLDER))


@pytest.mark.slow
def test_throughput_at_saturation_is_that_of_predict(bench):
    """By processor time, which other work on this machine disturbs the least."""
    x = np.random.default_rng(0).random((100 * 32, 784), np.float32)
    found = bench.throughput(bench.mlp(), x, 32, 7)
    predict = found.pop("predict")
    for name, speeds in found.items():
        ratios = {
            kind: np.median(np.divide(speeds[kind], predict[kind])) for kind in speeds
        }
        assert max(ratios.values()) >= 0.9, (name, ratios)


@pytest.mark.slow
def test_a_lone_request_takes_the_models_time_and_the_timeout(bench):
    x = np.zeros((1, 784), np.float32)
    times = bench.latency(bench.mlp(), x, 32, 5)
    own, lone = (np.quantile(times[name], 0.25) for name in ("own", "lone"))
    assert lone <= own + bench.TIMEOUT_MS + 1.0
