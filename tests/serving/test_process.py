"""Several devices, the end of the interpreter, and servings that are forgotten."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

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


@pytest.mark.slow
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


@pytest.mark.slow
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
