"""The end of a serving: drained or not, by the interpreter, or forgotten."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from exburn import Serving
from exburn.errors import (
    ServingClosedError,
)


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
