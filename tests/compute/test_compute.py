"""Buffers, kernels, pipelines and commands over JAX."""

import gc
import importlib
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn import compute
from exburn.errors import (
    ArgumentError,
    DataError,
    DTypeError,
    ShapeError,
    UnknownNameError,
)

# `compute.kernels` is the function that lists them.
registry = importlib.import_module("exburn.compute.kernels")


# --- buffers ------------------------------------------------------------------------


@pytest.mark.parametrize("name", compute.dtypes())
def test_every_dtype_there_and_back(name):
    values = np.array([[0, 1], [1, 0], [1, 1]]).astype(jnp.dtype(name))
    made = compute.buffer(values)
    assert compute.dtype(made) == name and compute.shape(made) == (3, 2)
    assert compute.read(made).tobytes() == values.tobytes()  # e8m0 has no zero, but NaN
    again = compute.buffer(compute.to_binary(made), (3, 2), name)
    assert again.dtype == made.dtype and compute.to_binary(again) == values.tobytes()


def test_all_dtypes_of_jax_are_known():
    wide = {"int64", "uint64", "float64", "complex128"}
    assert {*("bool", "int4", "uint8", "float16", "bfloat16", "complex64")} < {
        *compute.dtypes()
    }
    assert not wide & {*compute.dtypes()}
    with jax.enable_x64(True):
        assert wide < {*compute.dtypes()}
        assert compute.buffer([1.0, 2.0], dtype="float64").dtype == np.float64


def test_buffers():
    made = compute.buffer([1, 2, 3, 4, 5, 6], (2, 3), "float16")
    assert compute.size(made) == 12
    assert compute.buffer(made, (3, 2), "int8").dtype == np.int8
    assert compute.buffer([1.5]).dtype == np.float32
    compute.free(made)
    with pytest.raises(RuntimeError):
        compute.read(made)
    assert compute.buffer(np.array([1, 2], ">f4")).tolist() == [1, 2]
    assert compute.buffer([np.inf, np.nan], dtype="float16")[0] == np.inf
    assert compute.buffer([1], device="cpu").device.platform == "cpu"
    with pytest.raises(ArgumentError, match="device"):
        compute.buffer([1], device="cpu:99")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (([1, 2, 3], (2, 2)), ShapeError),
        ((b"12345", None, "float32"), ShapeError),
        ((b"1234",), DTypeError),
        (([1], None, "float7"), DTypeError),
        (([1.0], None, "float64"), DTypeError),
        (("text",), DTypeError),
        (([1, "a"], None, "float32"), DTypeError),
        (([[1], [2, 3]],), DTypeError),
        (([300], None, "int8"), DataError),
        (([1.5], None, "int32"), DataError),
        ((jnp.array([1.5]), None, "int32"), DataError),
        ((jnp.array([300]), None, "int8"), DataError),
        (([2], None, "bool"), DataError),
        (([1e6], None, "float16"), DataError),
        (([1e9], None, "float8_e4m3fn"), DataError),
        (([1j], None, "float32"), DTypeError),
        (([1, 2], (-1, -2)), ShapeError),
    ],
)
def test_bad_buffers(arguments, error):
    with pytest.raises(error):
        compute.buffer(*arguments)


# --- kernels ------------------------------------------------------------------------

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(2, 4, 4)).astype(np.float32)
IMAGE = RNG.normal(size=(1, 5, 5, 2)).astype(np.float32)
FILTER = RNG.normal(size=(2, 2, 2, 3)).astype(np.float32)


def numpy_softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


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


def test_the_sixteen_kernels_are_there():
    assert len(KERNELS) == 16 and {*KERNELS} <= {*compute.kernels()}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name):
    inputs, params, wanted = KERNELS[name]
    found = compute.run_kernel(name, *map(compute.buffer, inputs), **params)
    np.testing.assert_allclose(compute.read(found), wanted, rtol=1e-5, atol=1e-6)


@pytest.fixture
def own_kernels(monkeypatch):
    monkeypatch.setattr(registry, "_kernels", dict(registry._kernels))


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


# --- pipelines ----------------------------------------------------------------------


def test_a_pipeline_is_one_program():
    pipe = compute.Pipeline()
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
    pipe, other = compute.Pipeline(), compute.Pipeline()
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


# --- commands -----------------------------------------------------------------------


@pytest.mark.cpu
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
    pipe = compute.Pipeline()
    pipe.add("relu", pipe.input("x"))
    assert compute.wait(compute.submit(pipe.run, x=A)).shape == (4, 4)


def test_synchronize_waits_for_everything():
    gc.collect()  # of commands that failed in other tests: it would raise their error
    done = []

    def slow(x):
        def note(v):
            time.sleep(0.05)
            done.append(1)

        jax.debug.callback(note, x)
        return x + 1

    jax.jit(slow)(jnp.zeros(2))
    compute.synchronize()
    assert done == [1]


def test_memory():
    before = compute.memory_info()
    held = compute.buffer(np.zeros((256, 1024), np.float32))
    after = compute.memory_info()
    assert after["used"] >= before["used"] + held.nbytes > 0
    assert after["total"] > after["free"] > 0
    assert compute.device_count() == len(jax.devices())


def test_vectorize():
    import exburn

    product = exburn.vectorize(jnp.dot, in_axes=(0, None))
    assert product(jnp.ones((5, 3)), jnp.ones(3)).shape == (5,)
    model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(2)])
    many = np.ones((3, 5, 4), np.float32)
    np.testing.assert_allclose(
        exburn.vectorize(model)(many)[1], model(many[1]), rtol=1e-6
    )
