"""Tests of ``exburn.compute.commands``."""

import threading
import time

import jax
import jax.numpy as jnp
import pytest
from tests.compute.sums import IMAGE, A

from exburn import compute
from exburn.errors import (
    ArgumentError,
    DTypeError,
)


@pytest.mark.usefixtures("cpu_only")
def test_commands_run_while_the_host_goes_on():
    @jax.jit
    def slow(x):
        return jax.lax.fori_loop(0, 60, lambda _, v: jnp.sin(v) + 1e-3, x)

    x = jnp.zeros(1_000_000)
    compute.wait(compute.submit(slow, x))  # compiled
    command = compute.submit(slow, x)
    assert compute.poll(command) == "running"
    with pytest.raises(TimeoutError, match="slow"):
        compute.wait(command, timeout=1e-3)
    assert compute.wait(command, timeout=60).shape == x.shape
    assert compute.poll(command) == "completed"


def test_a_command_that_fails():
    with pytest.raises(ArgumentError, match="function"):
        compute.submit(3)
    for use in (compute.poll, compute.wait):
        with pytest.raises(DTypeError, match="submit"):
            use(jnp.ones(3))
    with pytest.raises(ArgumentError, match="timeout"):
        compute.wait(compute.submit("relu", A), timeout="1 s")
    command = compute.submit("matmul", A, IMAGE[0, 0])
    assert compute.poll(command) == "failed" and command.kernel == "matmul"
    with pytest.raises(ArgumentError):
        compute.wait(command)
    go = threading.Event()

    def fail(_):
        assert go.wait(20)
        raise ValueError

    broken = lambda x: jax.pure_callback(fail, x, x)  # noqa: E731
    threading.Timer(0.1, go.set).start()  # a CPU may run a callback before it returns
    command = compute.submit(jax.jit(broken), jnp.ones(3))
    until = time.monotonic() + 20
    while compute.poll(command) == "running" and time.monotonic() < until:
        time.sleep(0.001)
    assert compute.poll(command) == "failed"
    with pytest.raises(jax.errors.JaxRuntimeError):
        compute.wait(command)
    pipe = compute.ComputePipeline()
    pipe.add("relu", pipe.input("x"))
    assert compute.wait(compute.submit(pipe.run, x=A)).shape == (4, 4)
