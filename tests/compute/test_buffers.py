"""Tests of ``exburn.compute.buffers``."""

import gc
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn import compute
from exburn.errors import ArgumentError, DataError, DTypeError, ShapeError


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
