"""What a caller of a serving sees: answers, batches, programs, processing."""

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import exburn
from exburn import Serving, layers
from exburn.errors import (
    ArgumentError,
    BatchFailedError,
    ServingClosedError,
    ShapeError,
    UnknownNameError,
)


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("n", [1, 3, 8, 9, 50])
def test_an_answer_is_what_predict_gives(serving, mlp, rows, n):
    x = rows(n)
    expected = mlp.predict(x, verbose=0)
    answer = serving(x)
    close(answer, expected)
    assert type(answer) is np.ndarray and answer.flags.writeable
    close(serving.run(x), expected)
    close(serving.submit(x).result(), expected)
    close(asyncio.run(serving.arun(x)), expected)


def test_every_program_is_there_before_the_first_request(serving):
    assert serving.buckets == (1, 2, 4, 8)
    sizes = {("default", n) for n in (1, 2, 4, 8)}
    assert sizes <= set(serving.trace_counts)  # and, measured, bursts
    assert set(serving.trace_counts.values()) == {1}


def test_rows_of_many_callers_share_batches(mlp, rows):
    with Serving(mlp, batch_size=8, batch_timeout="500 ms") as serving:
        x = rows(8)
        answers = [serving.submit(x[i : i + 1]) for i in range(8)]
        close(np.concatenate([a.result() for a in answers]), mlp.predict(x, verbose=0))
        statistics = serving.statistics()
        assert (statistics.batches, statistics.rows, statistics.fill) == (1, 8, 1.0)


def test_what_coroutines_ask_in_one_turn_shares_a_batch(mlp, rows):
    async def ask(serving, x):
        return await asyncio.gather(*(serving.arun(row[None]) for row in x))

    x = rows(7)
    options = {"padding": [8], "burst": 1}
    with Serving(mlp, batch_size=8, batch_timeout=0, **options) as serving:
        answers = asyncio.run(ask(serving, x))
        statistics = serving.statistics()
        with pytest.raises(RuntimeError, match="no running event loop"):
            serving.submit_together(x)
    close(np.concatenate(answers), mlp.predict(x, verbose=0))
    assert (statistics.batches, statistics.rows) == (1, 7)


def test_a_batch_grows_while_all_partitions_are_busy(gate):
    with Serving(gate, batch_size=4, batch_timeout=0.0, example=gate.row(0)) as serving:
        gate.block(serving)
        answers = []
        for value in (1.0, 2.0, 3.0):  # each would be due at once
            answers.append(serving.submit(gate.row(value)))
            time.sleep(0.01)
        assert serving.status()["queue_depth"] == 3
        gate.open.set()
        assert [a.result(20).item() for a in answers] == [2, 4, 6]
        assert [sorted(set(b)) for b in gate.batches] == [[1, 2, 3]]


def test_a_full_batch_is_dispatched_behind_the_one_that_runs(gate):
    with Serving(gate, batch_size=2, batch_timeout=0.0, example=gate.row(0)) as serving:
        gate.block(serving)
        answers = [serving.submit(gate.row(v)) for v in (1.0, 2.0, 3.0)]
        gate.open.set()
        assert [a.result(20).item() for a in answers] == [2, 4, 6]
        assert gate.batches == [[1, 2], [3]]


def test_batch_keys_have_programs_of_their_own():
    model = exburn.Sequential(
        [exburn.Input((None, 2)), layers.GlobalAveragePooling1D(), layers.Dense(3)]
    )
    with pytest.raises(ArgumentError, match="batch_keys"):
        Serving(model)
    shapes = {5: np.zeros((1, 5, 2)), "long": np.zeros((1, 9, 2))}
    options = {"batch_size": 2, "batch_timeout": 0.0, "batch_keys": shapes, "burst": 1}
    with Serving(model, **options) as serving:
        for length, key in ((5, 5), (9, "long")):
            x = np.random.default_rng(0).random((3, length, 2), np.float32)
            close(serving(x, key=key), model(x))
            close(serving(x), model(x))  # the key is found by the shape
        with pytest.raises(UnknownNameError, match="batch key"):
            serving(x, key="short")
        with pytest.raises(ShapeError, match="none of the batch keys"):
            serving(np.zeros((1, 7, 2)))
        assert set(serving.trace_counts) == {(5, 1), (5, 2), ("long", 1), ("long", 2)}


def test_a_lone_quick_request_runs_in_the_loop_that_asks(gate):
    example, threads = gate.row(0.0), []

    async def ask(serving, *values):
        answers = [serving.submit_together(gate.row(value)) for value in values]
        answers[0].add_done_callback(lambda _: threads.append(threading.get_ident()))
        waited = (serving.wait_for(answer) for answer in answers)
        return await asyncio.gather(*waited, return_exceptions=True)

    def run(serving, *values):
        while not serving._batcher._idle:
            time.sleep(0.001)
        threads.clear()
        answers = asyncio.run(ask(serving, *values))
        return answers, threads == [threading.get_ident()]

    with Serving(gate, batch_size=4, batch_timeout=0, example=example) as serving:
        serving._quick = {"default"}  # a callback is not quick
        (answer,), here = run(serving, 3.0)
        assert answer.tolist() == [[6.0]] and here
        (failed,), here = run(serving, -1.0)
        assert isinstance(failed, BatchFailedError) and here
        both, here = run(serving, 1.0, 2.0)
        assert [float(a[0, 0]) for a in both] == [2.0, 4.0] and not here
        serving._quick = set()
        assert not run(serving, 3.0)[1]
        assert serving.statistics().requests["answered"] == 4
        assert serving.statistics().batches == 3


def test_only_quick_programs_that_wait_for_nobody_run_there(mlp):
    with Serving(mlp, batch_size=4, batch_timeout=0) as serving:
        (partition,) = serving._partitions
        partition.time = lambda key, size, calls=3: 1e-4
        assert partition.is_quick("default")
        partition.time = lambda key, size, calls=3: 1e-2 if calls == 1 else 1e-4
        assert not partition.is_quick("default")
    with Serving(mlp, batch_size=4, batch_timeout="1 ms") as serving:
        assert serving._quick == set()


def test_closing_drains(gate):
    options = {"batch_size": 2, "batch_timeout": 10, "example": gate.row(0)}
    with Serving(gate, **options) as serving:
        futures = [serving.submit(gate.row(float(v))) for v in range(1, 6)]
    assert [f.result(0).item() for f in futures] == [2, 4, 6, 8, 10]
    assert serving.closed and serving.status()["state"] == "closed"
    with pytest.raises(ServingClosedError):
        serving(gate.row(1.0))
    serving.close()  # again does nothing


def test_closing_without_draining_or_time(gate):
    for options in ({"drain": False, "timeout": 20}, {"timeout": 0.05}):
        serving = Serving(gate, batch_size=2, batch_timeout=0.0, example=gate.row(0))
        gate.block(serving)
        waiting = serving.submit(gate.row(1.0))
        if not options.get("drain", True):
            gate.open.set()
        serving.close(**options)
        if options.get("drain", True):
            with pytest.raises(ServingClosedError):
                waiting.result(0)
        gate.open.set()
        assert gate.held.result(20).item() == 18  # what ran was awaited
        serving.close()


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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_the_end_of_the_interpreter_and_the_child_of_a_fork():
    """The first answers what it has; the second, whose threads are gone, says so."""
    code = """
        import os, warnings, numpy as np, jax.numpy as jnp
        from exburn import Serving
        from exburn.errors import ServingClosedError
        x = np.full((1, 1), 3.0, np.float32)
        serving = Serving(jnp.square, 4, "5 s", example=x, padding=[4])
        warnings.simplefilter("ignore")  # of JAX: it has threads
        child = os.fork()
        if child == 0:
            try:
                serving(x)
            except ServingClosedError as error:
                serving.close()
                os._exit(3 if "forked" in str(error) else 4)
            os._exit(5)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        future = serving.submit(x)
        future.add_done_callback(lambda f: print(f.result().item()))
    """
    assert run(code).split() == ["3", "9.0"]


def test_a_serving_that_is_dropped_ends_its_threads():
    code = """
        import gc, threading, time, numpy as np, jax.numpy as jnp
        from exburn import Serving
        serving = Serving(jnp.square, 4, "5 s", example=np.ones((1, 1)))
        def threads():
            return [t for t in threading.enumerate() if "serving" in t.name]
        assert threads()
        future = serving.submit(np.ones((1, 1)))
        del serving
        gc.collect()
        until = time.monotonic() + 10
        while threads() and time.monotonic() < until:
            time.sleep(0.01)
        print(threads(), type(future.exception(1)).__name__)
    """
    assert run(code) == "[] ServingClosedError"


def test_probes_reach_every_partition_ahead_of_what_waits(mlp, rows):
    with Serving(mlp, batch_size=8, batch_timeout="10 min") as serving:
        waiting = serving.submit(rows(3))
        (seconds,) = (probe.result(10) for probe in serving.send_probes())
        assert 0 < seconds < 10 and not waiting.done()
        statistics = serving.statistics()
        assert (statistics.batches, statistics.requests["answered"]) == (0, 0)
        serving.close()
        assert waiting.result(10).shape == (3, 3)
        with pytest.raises(ServingClosedError):
            serving.send_probes()


def test_a_probe_tells_that_a_device_fails(mlp, monkeypatch):
    with Serving(mlp, batch_size=1, batch_timeout=0) as serving:

        def fail(*args, **options):
            raise RuntimeError("the device is gone")

        monkeypatch.setattr(serving._partitions[0], "time", fail)
        (probe,) = serving.send_probes()
        assert "the device is gone" in str(probe.exception(10))
