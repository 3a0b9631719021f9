"""What a serving tells of its requests and batches."""

import jax
import pytest

from exburn import Serving


def test_statistics_and_status(mlp, rows):
    with Serving(mlp, batch_size=4, batch_timeout="60 ms") as serving:
        for n in (1, 4, 4, 4, 3):
            serving(rows(n))
        seen = serving.statistics()
        assert seen.requests["accepted"] == seen.requests["answered"] == 5
        assert (seen.batches, seen.rows, set(seen.buckets)) == (5, 16, {1, 4})
        assert seen.fill == pytest.approx(16 / 20)
        assert seen.buckets[4].fill == pytest.approx(15 / 16)
        small = seen.buckets[1]
        assert small.wait_ms["p50"] >= 50 > seen.buckets[4].wait_ms["p50"]
        for times in (small.run_ms, seen.wait_ms, seen.run_ms, seen.total_ms):
            assert 0 < times["p50"] <= times["p95"] <= times["p99"]
        assert seen.total_ms["p99"] >= 50  # the lone row waited for others
        assert "batches of 4" in str(seen)
        status = serving.status()
        assert (status["state"], status["model"]) == ("running", mlp.name)
        assert status["devices"] == [str(jax.devices()[0])]
        assert "running" in repr(serving)
        serving.reset_statistics()
        assert serving.statistics().batches == 0
