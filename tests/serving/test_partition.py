"""One device with its programs and its thread: what fails, and for whom."""

import itertools
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import jax
import numpy as np
import pytest

import exburn
from exburn import Serving, layers
from exburn.errors import ArgumentError, BatchFailedError
from exburn.serving import emit, partition


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


@pytest.mark.usefixtures("cpu_only")
def test_full_batches_that_wait_run_in_one_call(gate):
    options = {"batch_size": 2, "batch_timeout": 0.0, "example": gate.row(0)}
    with Serving(gate, burst=4, **options) as serving:
        assert set(serving.trace_counts) == {("default", n) for n in (1, 2, 8)}
        gate.block(serving)
        answers = [serving.submit(gate.row(v, v + 0.5)) for v in range(1, 10)]
        gate.open.set()
        found = [answer.result(20)[:, 0].tolist() for answer in answers]
        assert found == [[2.0 * v, 2.0 * v + 1] for v in range(1, 10)]
        # 4 + 4 + 1 behind the one that held the gate; each batch ran by itself.
        statistics = serving.statistics()
        assert (statistics.calls, statistics.batches, statistics.rows) == (4, 10, 19)
        assert gate.batches == [[v, v + 0.5] for v in range(1, 10)]
        bucket = statistics.buckets[2]
        assert (bucket.batches, bucket.fill) == (9, 1.0)
        assert serving.status()["running"] == [0]
        assert set(serving.trace_counts.values()) == {1}


def tree():
    ids = layers.Input((4,), dtype="int32", name="ids")
    extra = layers.Input((3,), name="extra")
    words = layers.Flatten()(layers.Embedding(10, 2)(ids))
    joined = layers.Concatenate()([words, extra])
    outputs = {"score": layers.Dense(2)(joined), "both": [joined, extra * 2.0]}
    model = exburn.Model({"ids": ids, "extra": extra}, outputs)
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 10, (90, 4)).astype(np.int32)
    return model, {"ids": ids, "extra": rng.random((90, 3), np.float32)}


def half():
    """Sixteen-bit outputs."""
    model = exburn.Sequential([exburn.Input((5,)), layers.Dense(3, dtype="bfloat16")])
    return model, np.random.default_rng(0).random((90, 5), np.float32)


def noisy():
    """Draws at inference, for each batch anew."""
    x = layers.Input((5,))
    y = layers.Dense(3)(layers.Dropout(0.5)(x, training=True))
    return exburn.Model(x, y), np.ones((90, 5), np.float32)


@pytest.mark.parametrize("make", [tree, half, noisy])
def test_the_answers_are_those_of_single_batches(make):
    """Of every kind of model, and requests of any size: no rows are mixed up."""
    model, x = make()

    def rows_of(tree, start, stop):
        return jax.tree.map(lambda leaf: leaf[start:stop], tree)

    def close(got, wanted):
        assert jax.tree.structure(got) == jax.tree.structure(wanted)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
            assert (type(a), a.dtype, a.flags.writeable) == (np.ndarray, b.dtype, True)
            np.testing.assert_allclose(
                a.astype(np.float32), b.astype(np.float32), rtol=2e-5, atol=2e-6
            )

    options = {"batch_size": 3, "batch_timeout": "2 ms", "padding": [3]}
    with Serving(model, burst=1, **options) as single:
        right = single(x)
    with Serving(model, burst=5, **options) as serving:
        assert sorted(n for _, n in serving.trace_counts) == [3, 12, 15]
        close(serving(x), right)
        statistics = serving.statistics()
        assert (statistics.batches, statistics.calls) == (30, 6)
        if make is noisy:
            close(serving(rows_of(x, 0, 3)), rows_of(right, 0, 3))
            return
        close(serving(x), model.predict(x, verbose=0))
        cuts = [0, 1, 8, 9, 30, 37, 41, 80, 90]
        pairs = list(itertools.pairwise(cuts))
        answers = [serving.submit(rows_of(x, *pair)) for pair in pairs]
        for pair, answer in zip(pairs, answers, strict=True):
            close(answer.result(), rows_of(right, *pair))


@pytest.mark.parametrize(("width", "arrays"), [(2, 1), (100_000, 2)])
def test_new_weights_are_those_of_bursts_too(width, arrays):
    """And large rows come to the device in several arrays."""
    x = np.repeat(np.arange(24, dtype=np.float32)[:, None], width, 1)
    options = {"batch_size": 2, "batch_timeout": 0.0, "example": x[:1], "burst": 4}
    with Serving(lambda w, x: w * x[:, -1:], weights=np.ones(1), **options) as serving:
        assert len(serving._partitions[0]._inputs("default", 8)) == arrays
        answers = [serving.submit(x[i : i + 3]) for i in range(0, 24, 3)]
        found = np.concatenate([answer.result() for answer in answers])
        assert (found == x[:, :1]).all()
        serving.reset_statistics()
        serving.update_weights(-np.ones(1))
        assert (serving(x) == -x[:, :1]).all()
        assert serving.statistics().calls == 3


def test_bursts_are_made_where_they_pay():
    """A batch that takes longer than a call is left alone; hooks need single ones."""

    def slow(x):
        def wait(x):
            threading.Event().wait(0.002)
            return x

        return jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    options = {"batch_size": 2, "padding": [2], "example": np.ones((1, 1))}
    with Serving(slow, **options) as serving:
        assert set(serving.trace_counts) == {("default", 2)}
    with Serving(lambda x: emit("x", x), hooks="x", burst=4, **options) as serving:
        assert set(serving.trace_counts) == {("default", 2)}
    for wrong in (0, True, 1.5):
        with pytest.raises(ArgumentError, match="burst"):
            Serving(slow, burst=wrong, **options)


@pytest.mark.parametrize(
    ("alone", "burst", "chosen"),
    [
        (1.0e-3, 1.03e-3, (4, 16, 64)),  # 10 µs for each further batch
        (1.0e-3, 1.6e-3, (4, 16)),  # 0.2 ms: 64 of them would take 13 ms
        (1.0e-3, 2.0e-3, (4,)),
        (1.0e-3, 2.5e-3, ()),  # not much less than four times one
    ],
)
def test_the_time_of_the_smallest_burst_decides(alone, burst, chosen):
    assert partition._those_that_pay((4, 16, 64), alone, burst) == chosen
