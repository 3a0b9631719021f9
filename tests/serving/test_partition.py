"""One device with its programs and its thread: what fails, and for whom."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from exburn import Serving
from exburn.errors import (
    BatchFailedError,
)


def test_a_failure_reaches_the_callers_of_its_batch_only(gate):
    with Serving(gate, batch_size=2, batch_timeout=0.0, example=gate.row(0)) as serving:
        gate.block(serving)
        good, poison, mate, later = (
            serving.submit(gate.row(*v)) for v in ([1.0, 2.0], [-1.0], [3.0], [4.0])
        )
        gate.open.set()
        assert good.result(20).tolist() == [[2], [4]]
        for future in (poison, mate):
            with pytest.raises(BatchFailedError, match="poison") as raised:
                future.result(20)
            assert raised.value.__cause__ is not None
        assert poison.exception() is not mate.exception()
        assert later.result(20).item() == 8
        assert serving(gate.row(5.0)).item() == 10  # the partition lives
        assert serving.statistics().requests["failed"] == 2
        assert serving.status()["running"] == [0]


def test_a_callback_cannot_end_the_partition(serving, rows, caplog):
    def leave(answer):
        raise SystemExit

    serving.submit(rows(1)).add_done_callback(leave)
    assert serving(rows(2), timeout=20).shape == (2, 3)
    assert "callback" in caplog.text


ROOT = Path(__file__).resolve().parents[2]


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
        | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


def test_a_partition_on_each_device():
    """All eight run at once: each batch waits until eight are inside."""
    code = """
        import threading, jax, numpy as np
        from exburn import Serving
        met = threading.Barrier(8)
        def wait(x):
            if np.asarray(x).any():
                met.wait(30)
            return np.float32(0)
        def f(weights, x):
            extra = jax.pure_callback(wait, jax.ShapeDtypeStruct((), "float32"), x)
            return x @ weights + extra
        w = np.ones((2, 1), np.float32)
        example = np.zeros((1, 2), np.float32)
        serving = Serving(f, 2, 0.0, weights=w, example=example, padding=[2])
        with serving:
            x = np.arange(1, 65, dtype=np.float32).reshape(32, 2)
            assert np.array_equal(serving(x), x @ w)
            assert len(serving.devices) == 8
            serving.update_weights(-w)
            assert np.array_equal(serving(x), -x @ w)
            statistics = serving.statistics()
        assert statistics.batches == 32, statistics
        g = lambda weights, x: x @ weights
        options = {"weights": w, "example": example, "padding": [2]}
        with Serving(g, 2, 0.0, burst=4, **options) as serving:
            x = np.arange(1024, dtype=np.float32).reshape(512, 2)
            assert np.array_equal(serving(x), x @ w)
            statistics = serving.statistics()
        # The last 28 batches are less than a burst for each device.
        assert (statistics.batches, statistics.calls) == (256, 57 + 28), statistics
        with Serving(f, 2, 0.0, weights=w, example=example, partitions=2) as serving:
            print(serving.status()["devices"])
        with Serving(f, 2, 0.0, weights=w, example=example, padding=[2],
                     partitions=jax.devices()[6:]) as serving:
            print(serving.status()["devices"])
    """
    flags = "--xla_force_host_platform_device_count=8"
    printed = run(code, XLA_FLAGS=flags).splitlines()
    assert "0" in printed[0] and "1" in printed[0]
    assert "6" in printed[1] and "7" in printed[1]


def test_a_failure_in_a_burst_reaches_the_callers_of_its_batch_only(gate):
    options = {"batch_size": 2, "batch_timeout": 0.0, "example": gate.row(0)}
    with Serving(gate, burst=4, **options) as serving:
        gate.block(serving)
        rows = [(1.0,), (2.0, 3.0), (-1.0,), (5.0, 6.0), (7.0, 8.0)]
        answers = [serving.submit(gate.row(*row)) for row in rows]
        gate.open.set()
        assert gate.held.result(20).item() == 18
        # The batches: 1 2 | 3 -1 | 5 6 | 7 8. The second request has a row in each of
        # the first two, and so fails as well.
        for row, answer in zip(rows, answers, strict=True):
            if row in ((2.0, 3.0), (-1.0,)):
                with pytest.raises(BatchFailedError, match="poison"):
                    answer.result(20)
            else:
                assert answer.result(20)[:, 0].tolist() == [2 * v for v in row]
        counts = serving.statistics().requests
        assert (counts["failed"], counts["answered"]) == (2, 4)
        assert serving(gate.row(9.0)).item() == 18
        assert serving.status()["running"] == [0]
