"""Tests of ``exburn.compute.kernels``."""

import importlib
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.compute.sums import FILTER, IMAGE, A, B, numpy_softmax

from exburn import compute
from exburn.errors import ArgumentError, DTypeError, UnknownNameError

# `compute.kernels` is the function that lists them.
registry = importlib.import_module("exburn.compute.kernels")


def numpy_norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def numpy_conv(x, k):
    out = np.zeros((1, 4, 4, 3), np.float32)
    for i in range(4):
        for j in range(4):
            out[0, i, j] = np.einsum("hwc,hwco->o", x[0, i : i + 2, j : j + 2], k)
    return out


KERNELS = {
    "elementwise_add": ((A, B), {}, A + B),
    "elementwise_sub": ((A, B), {}, A - B),
    "elementwise_mul": ((A, B), {}, A * B),
    "elementwise_div": ((A, B), {}, A / B),
    "relu": ((A,), {}, np.maximum(A, 0)),
    "sigmoid": ((A,), {}, 1 / (1 + np.exp(-A))),
    "tanh": ((A,), {}, np.tanh(A)),
    "matmul": ((A, B), {}, A @ B),
    "reduce_sum": ((A,), {"axis": 1}, A.sum(1)),
    "reduce_max": ((A,), {"axis": [0, 1]}, A.max()),
    "reduce_min": ((A,), {}, A.min()),
    "softmax": ((A,), {}, numpy_softmax(A)),
    "layer_norm": ((A,), {}, numpy_norm(A)),
    "conv2d": ((IMAGE, FILTER), {"strides": 1}, numpy_conv(IMAGE, FILTER)),
    "transpose": ((A,), {"axes": [1, 0]}, A.T),
    "reshape": ((A,), {"shape": [2, 8]}, A.reshape(2, 8)),
}


@pytest.fixture
def own_kernels(monkeypatch):
    monkeypatch.setattr(registry, "_kernels", dict(registry._kernels))


def test_the_sixteen_kernels_are_there():
    assert len(KERNELS) == 16 and {*KERNELS} <= {*compute.kernels()}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name):
    inputs, params, wanted = KERNELS[name]
    found = compute.run_kernel(name, *map(compute.buffer, inputs), **params)
    np.testing.assert_allclose(compute.read(found), wanted, rtol=1e-5, atol=1e-6)


def test_own_kernels(own_kernels):
    traces = []

    @compute.register_kernel("scaled")
    def scaled(x, *, by):
        traces.append(1)
        return x * by

    for _ in range(3):
        assert compute.run_kernel("scaled", A, by=2.0).shape == (4, 4)
    assert len(traces) == 1  # compiled once
    compute.run_kernel("scaled", A, by=3.0)
    assert len(traces) == 2
    compute.register_kernel("scaled", lambda x, *, by: x + by)  # takes its place
    np.testing.assert_allclose(compute.run_kernel("scaled", A, by=3.0), A + 3)
    with pytest.raises(UnknownNameError, match="Did you mean 'matmul'"):
        compute.run_kernel("matmull", A, B)
    with pytest.raises(ArgumentError):
        compute.register_kernel("", scaled)
    for name, given, params in (
        ("matmul", (A,), {}),
        ("matmul", (A, np.ones((3, 3), np.float32)), {}),
        ("relu", (A,), {"slope": 0.1}),
        ("reduce_sum", (A,), {"axis": 9}),
    ):
        with pytest.raises(ArgumentError, match=rf"{name}.*does not take float32\["):
            compute.run_kernel(name, *given, **params)


def test_pallas_kernels(own_kernels):
    from jax.experimental import pallas as pl

    def body(x_ref, y_ref, out_ref):
        out_ref[...] = x_ref[...] * y_ref[...] + 1.0

    @compute.register_kernel("fused")
    def fused(x, y):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return pl.pallas_call(body, out_shape=shape, interpret=True)(x, y)

    np.testing.assert_allclose(compute.run_kernel("fused", A, B), A * B + 1, rtol=1e-6)


def test_compile_ahead():
    spec = jax.ShapeDtypeStruct((4, 4), np.float32)
    program = compute.compile_kernel("matmul", spec, spec)
    assert program.cost_analysis()["flops"] == 2 * 4**3
    np.testing.assert_allclose(program(A, B), A @ B, rtol=1e-5)


def test_vectorize():
    import exburn

    product = exburn.vectorize(jnp.dot, in_axes=(0, None))
    assert product(jnp.ones((5, 3)), jnp.ones(3)).shape == (5,)
    model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(2)])
    many = np.ones((3, 5, 4), np.float32)
    np.testing.assert_allclose(
        exburn.vectorize(model)(many)[1], model(many[1]), rtol=1e-6
    )


def test_a_pipeline_is_one_program():
    pipe = compute.ComputePipeline()
    x = pipe.input("x")
    product = pipe.add("matmul", x, B)
    total = pipe.add("elementwise_add", product, x)
    out = pipe.add("softmax", total, axis=-1)
    for value in (A, B, A + 1):
        np.testing.assert_allclose(
            pipe.run(x=value), numpy_softmax(value @ B + value), rtol=1e-5
        )
    assert pipe.traces == 1
    first, last = pipe.run(x=A, outputs=[product, out])
    np.testing.assert_allclose(first, A @ B, rtol=1e-5)
    assert last.shape == (4, 4) and pipe.traces == 2
    pipe.add("reduce_sum", out)
    assert float(pipe.run(x=A)) == pytest.approx(4, rel=1e-5)


def test_bad_pipelines():
    pipe, other = compute.ComputePipeline(), compute.ComputePipeline()
    with pytest.raises(ArgumentError):
        pipe.run()
    x, foreign = pipe.input("x"), other.input("x")
    with pytest.raises(ArgumentError, match="another pipeline"):
        pipe.add("relu", foreign)
    with pytest.raises(ArgumentError, match="taken"):
        pipe.input("x")
    with pytest.raises(UnknownNameError):
        pipe.add("rely", x)
    out = pipe.add("relu", x)
    for bad in ([foreign], [3], out):
        with pytest.raises(ArgumentError):
            pipe.run(x=A, outputs=bad)
    for name in ("outputs", 3):
        with pytest.raises(ArgumentError, match="name"):
            pipe.input(name)
    with pytest.raises(ArgumentError, match="inputs"):
        pipe.run(y=A)
    pipe.add("matmul", x, np.ones((3, 3), np.float32))
    with pytest.raises(ArgumentError, match="'matmul' does not take"):
        pipe.run(x=A)


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
