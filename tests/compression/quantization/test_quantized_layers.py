"""Every layer and scheme against quantization written plainly in NumPy."""

import numpy as np
import pytest
from tests.compression.quantization.plain import BLOCK, every_layer, reference

from exburn.module.traversal import iter_weights

SUMMED = {  # by the end of a weight's path
    "dense/kernel": (0,),
    "einsum/kernel": (0,),
    "einsum_tail/kernel": (0,),
    "einsum_batch/kernel": (1,),
    "query/kernel": (0,),
    "key/kernel": (0,),
    "value/kernel": (0,),
    "attention_output/kernel": (0, 1),
    "conv1/kernel": (0, 1),
    "conv2/kernel": (0, 1, 2),
    "grouped/kernel": (0, 1, 2),
    "conv3/kernel": (0, 1, 2, 3),
    "transposed1/kernel": (0, 2),
    "transposed2/kernel": (0, 1, 3),
    "depthwise/kernel": (0, 1),
    "separable/depthwise_kernel": (0,),
    "separable/pointwise_kernel": (0, 1),
    "embedding/embeddings": (1,),
    "conv_lstm/cell/kernel": (0, 1, 2),
    "conv_lstm/cell/recurrent_kernel": (0, 1, 2),
    "cell/kernel": (0,),
    "cell/recurrent_kernel": (0,),
    "cells/0/kernel": (0,),
    "cells/0/recurrent_kernel": (0,),
    "cells/1/kernel": (0,),
    "cells/1/recurrent_kernel": (0,),
    "td/layer/kernel": (0,),
}


def axes_of(path):
    ends = [end for end in SUMMED if f"/{path}".endswith(f"/{end}")]
    return SUMMED[max(ends, key=len)] if ends else None


@pytest.fixture(scope="module")
def zoo():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3, 6, 16)).astype(np.float32)
    return every_layer(), [x, rng.integers(0, 50, (3, 7)).astype(np.int32)]


@pytest.mark.parametrize(
    "dtype",
    [
        "int8",
        "int4",
        "float8",
    ],
)
def test_every_layer_computes_with_the_stored_weights(zoo, dtype):
    model, x = zoo
    block = {"block_size": BLOCK} if dtype == "int4" else {}
    outputs = model.quantize(dtype, **block).predict(x, verbose=0)
    weights = [(path, w, w.numpy()) for path, w, _ in iter_weights(model)]
    packed = 0
    for path, weight, value in weights:
        if (axes := axes_of(path)) is not None:
            weight.assign(reference(value, axes, dtype))
            packed += 1
    assert packed == 41
    try:
        wanted = model.predict(x, verbose=0)
    finally:
        for _, weight, value in weights:
            weight.assign(value)
    for name, want in wanted.items():
        np.testing.assert_allclose(
            outputs[name], want, rtol=2e-4, atol=2e-5, err_msg=name
        )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_casts_change_every_weight_but_little_of_the_output(zoo, dtype):
    model, x = zoo
    small = model.quantize(dtype)
    exact = {path: w.numpy() for path, w, _ in iter_weights(model)}
    for path, weight, _ in iter_weights(small):
        assert weight.dtype == dtype
        assert (weight.numpy() == exact[path].astype(weight.dtype)).all()
    wanted, outputs = model.predict(x, verbose=0), small.predict(x, verbose=0)
    for name, want in wanted.items():
        assert outputs[name].dtype == dtype, name
        error = np.abs(outputs[name].astype(np.float32) - want).max() / want.std()
        assert error < (0.01 if dtype == "float16" else 0.05), name
