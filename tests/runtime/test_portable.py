"""Tests of ``exburn.runtime.portable``: other forms, and the same values."""

import jax
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import UnknownNameError
from exburn.export.operations import inline
from exburn.runtime import portable

X = np.random.default_rng(0).standard_normal((2, 7, 3)).astype(np.float32)


def primitives(function, target):
    """The names of what a function is traced to, for a target."""
    with portable.portable(target):
        closed = jax.make_jaxpr(lambda x: function(x))(X)
    return [step.name for step in inline(closed).walk()]


@pytest.mark.parametrize(
    "options",
    [
        {"kernel_size": 3, "strides": 2, "padding": "same"},
        {"kernel_size": 2, "strides": 3, "padding": "valid"},
        {"kernel_size": 3, "strides": 2, "padding": "same", "output_padding": 1},
    ],
)
def test_transposed_convolutions_cut_the_whole_result(options):
    layer = layers.Conv1DTranspose(2, **options)
    wanted = layer(X)
    with portable.portable("litert"):
        np.testing.assert_allclose(layer(X), wanted, rtol=1e-5, atol=1e-6)
    assert "slice" in primitives(layer, "litert")
    assert "slice" not in primitives(layer, "onnx")


def test_windows_are_left_to_the_runtime_and_loops_are_unrolled():
    pool, loop = layers.MaxPooling1D(2), layers.SimpleRNN(2)
    wanted = pool(X)
    loop.build(X.shape)
    with portable.portable("onnx"):
        np.testing.assert_array_equal(pool(X), wanted)
    assert primitives(pool, "onnx") == ["reduce_window_max"]
    with portable.portable("litert"):
        closed = jax.make_jaxpr(lambda x: loop(x))(X)
    unrolled = [s.params["unroll"] for s in inline(closed).steps if s.name == "scan"]
    assert set(unrolled) <= {7}


def test_operations_know_their_layers():
    model = exburn.Sequential(
        [exburn.Input((7, 3)), layers.Dense(2, "tanh", name="inner")]
    )
    with portable.portable("onnx"):
        closed = jax.make_jaxpr(lambda x: model(x) + 1)(X)
    found = {step.name: step.layer for step in inline(closed).steps}
    assert found["tanh"] == found["dot_general"] == "inner" and found["add"] == ""
    assert portable.current() is None
    with pytest.raises(UnknownNameError, match="'onx'"):
        with portable.portable("onx"):
            pass
