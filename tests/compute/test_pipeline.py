"""Tests of ``exburn.compute.pipeline``."""

import numpy as np
import pytest
from tests.compute.sums import A, B, numpy_softmax

from exburn import compute
from exburn.errors import (
    ArgumentError,
    UnknownNameError,
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
