"""Every layer and scheme against quantization written plainly in NumPy."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn import Model, layers, ops
from exburn.module.traversal import iter_weights
from exburn.module.variable import Parameter
from exburn.transforms.quantization import QuantizedWeight, Scheme

BLOCK = 32


def rounded_up(scale):
    """bfloat16 of no smaller magnitude, by its bits; 1 for 0."""
    bits = np.abs(scale).astype(np.float32).view(np.uint32)
    up = ((bits + 0xFFFF) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return np.where(up == 0, 1, np.copysign(up, scale)).astype(np.float32)


def reference(weight, summed, dtype, block_size=BLOCK):
    """The weight after it was stored in few bits, and read."""
    if dtype != "int4":
        largest = np.abs(weight).max(axis=summed, keepdims=True)
        if dtype == "float8":
            scale = rounded_up(largest / np.float32(448))
            return (weight / scale).astype(jnp.float8_e4m3fn).astype(np.float32) * scale
        scale = rounded_up(largest / np.float32(127))
        return np.rint(weight / scale) * scale
    kept = [i for i in range(weight.ndim) if i not in summed]
    order = [*kept, *summed]
    moved = weight.transpose(order)
    rows = moved.reshape(-1, int(np.prod([weight.shape[i] for i in summed])))
    count = -(-rows.shape[1] // block_size)
    length = -(-rows.shape[1] // count)
    length += length % 2
    result = np.empty_like(rows)
    for row, out in zip(rows, result, strict=True):
        for start in range(0, len(row), length):
            part = row[start : start + length]
            scale = rounded_up(-part[np.abs(part).argmax()] / np.float32(8))
            whole = np.clip(np.rint(part / scale), -8, 7)
            out[start : start + length] = whole * scale
    return result.reshape(moved.shape).transpose(np.argsort(order))


@pytest.mark.parametrize("dtype", ["int8", "int4", "float8"])
@pytest.mark.parametrize(
    ("shape", "summed"),
    [
        ((100, 7), (0,)),
        ((7, 100), (1,)),
        ((3, 3, 8, 5), (0, 1, 2)),
        ((3, 3, 5, 8), (0, 1, 3)),
        ((4, 6, 9), (0, 1)),
        ((2, 1), (0,)),
    ],
)
def test_a_weight_is_stored_as_the_reference_says(rng, dtype, shape, summed):
    weight = rng.standard_normal(shape).astype(np.float32)
    scheme = Scheme(dtype, shape, summed, BLOCK if dtype == "int4" else None)
    values, scale = scheme.encode(weight)
    assert (values.shape, values.dtype) == scheme.values_spec
    assert (scale.shape, scale.dtype) == scheme.scale_spec
    assert values.nbytes + scale.nbytes == scheme.nbytes
    read = scheme.decode(jax.device_put(values), jax.device_put(scale))
    np.testing.assert_allclose(read, reference(weight, summed, dtype), rtol=1e-6)


def test_zeros_and_tiny_numbers_survive():
    for dtype in ("int8", "int4", "float8"):
        scheme = Scheme(dtype, (64, 3), (0,), 32 if dtype == "int4" else None)
        weight = np.zeros((64, 3), np.float32)
        weight[:, 1] = 1e-30
        weight[:, 2] = 1e30
        read = np.asarray(scheme.decode(*map(jax.device_put, scheme.encode(weight))))
        assert (read[:, 0] == 0).all()
        np.testing.assert_allclose(read, weight, rtol=0.01)


def test_int4_beats_the_symmetric_range(rng):
    weight = rng.standard_normal((1024, 16)).astype(np.float32)
    blocks = weight.T.reshape(16, -1, 64)
    step = np.abs(blocks).max(-1, keepdims=True) / 7
    plain = ((np.rint(blocks / step) * step - blocks) ** 2).mean()
    ours = ((reference(weight, (0,), "int4", 64) - weight) ** 2).mean()
    assert ours < 0.85 * plain


# ------------------------------------------------------------------------- layers
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


def every_layer():
    """A model with an output from each kind of layer, so that it compiles once."""
    x = layers.Input((6, 16), name="x")
    ids = layers.Input((7,), dtype="int32", name="ids")
    image = ops.reshape(x, (-1, 6, 4, 4))
    volume = ops.reshape(x, (-1, 4, 3, 4, 2))
    film = ops.reshape(x, (-1, 2, 4, 4, 3))
    outputs = {
        "dense": layers.Dense(40, "relu", name="dense")(x),
        "einsum": layers.EinsumDense("...x,xy->...y", 20, bias_axes="y", name="einsum")(
            x
        ),
        "tail": layers.EinsumDense("ab...,bc->ac...", (20,), name="einsum_tail")(x),
        "batch": layers.EinsumDense("bnd,nde->bne", (6, 20), name="einsum_batch")(x),
        "mha": layers.MultiHeadAttention(2, 8, name="mha")(x, x),
        "gqa": layers.GroupedQueryAttention(8, 4, 2, name="gqa")(x, x),
        "conv1": layers.Conv1D(12, 3, padding="causal", name="conv1")(x),
        "conv2": layers.Conv2D(12, 3, name="conv2")(image),
        "grouped": layers.Conv2D(12, 3, groups=2, name="grouped")(image),
        "conv3": layers.Conv3D(12, 2, name="conv3")(volume),
        "transposed1": layers.Conv1DTranspose(12, 3, 2, name="transposed1")(x),
        "transposed2": layers.Conv2DTranspose(12, 3, 2, name="transposed2")(image),
        "depthwise": layers.DepthwiseConv2D(3, name="depthwise")(image),
        "separable": layers.SeparableConv1D(12, 5, name="separable")(x),
        "embedding": layers.Embedding(50, 32, name="embedding")(ids),
        "rnn": layers.SimpleRNN(12, name="rnn")(x),
        "lstm": layers.LSTM(12, return_sequences=True, name="lstm")(x),
        "gru": layers.GRU(12, name="gru")(x),
        "gru_before": layers.GRU(12, reset_after=False, name="gru_before")(x),
        "two": layers.Bidirectional(layers.LSTM(8), name="two")(x),
        "stack": layers.RNN([layers.LSTMCell(8), layers.GRUCell(8)], name="stack")(x),
        "td": layers.TimeDistributed(layers.Dense(24), name="td")(x),
        "conv_lstm": layers.ConvLSTM2D(8, 3, name="conv_lstm")(film),
    }
    return Model([x, ids], outputs)


def axes_of(path):
    ends = [end for end in SUMMED if f"/{path}".endswith(f"/{end}")]
    return SUMMED[max(ends, key=len)] if ends else None


@pytest.fixture(scope="module")
def zoo():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3, 6, 16)).astype(np.float32)
    return every_layer(), [x, rng.integers(0, 50, (3, 7)).astype(np.int32)]


@pytest.mark.long
@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param("int8", marks=pytest.mark.longest),
        pytest.param("int4", marks=pytest.mark.longest),
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


@pytest.mark.long
def test_int8_dynamic_rounds_rows_of_the_input(zoo):
    model, x = zoo
    small = model.quantize("int8_dynamic", filters=["dense", "einsum"])
    outputs = small.predict(x, verbose=0)
    step = np.abs(x[0]).max(-1, keepdims=True) / 127
    rounded = np.rint(x[0] / step)
    for name, activation in (("dense", lambda v: np.maximum(v, 0)), ("einsum", None)):
        layer = model.get_layer(name)
        kernel = layer.kernel.numpy()
        scale = rounded_up(np.abs(kernel).max(0) / np.float32(127))
        y = (rounded @ np.rint(kernel / scale)) * step * scale + layer.bias.numpy()
        want = activation(y) if activation else y
        np.testing.assert_allclose(outputs[name], want, rtol=1e-4, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(
    "dtype", [pytest.param("float16", marks=pytest.mark.longest), "bfloat16"]
)
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


# ------------------------------------------------------------------------- one row
@pytest.mark.parametrize("dtype", ["int8", "int4", "float8", "dynamic"])
def test_a_single_row_by_sums_equals_a_matrix_product(rng, monkeypatch, dtype):
    weight = Parameter(rng.standard_normal((70, 9)).astype(np.float32))
    stored = "int8" if dtype == "dynamic" else dtype
    scheme = Scheme(
        stored, (70, 9), (0,), 32 if dtype == "int4" else None, dtype == "dynamic"
    )
    small = QuantizedWeight(weight, scheme)
    x = jnp.asarray(rng.standard_normal((1, 1, 70)), jnp.float32)
    wanted = small.multiply(jnp.tile(x, (2, 1, 1)))[:1]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert "dot_general" not in str(jax.make_jaxpr(small.multiply)(x))
    np.testing.assert_allclose(small.multiply(x), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("columns", [3, 4, 70])
def test_integer_products_on_a_gpu_sum_a_multiple_of_four_terms(
    rng, monkeypatch, columns
):
    """Of others XLA's kernels there give twice the product."""
    x = jnp.asarray(rng.integers(-127, 128, (2, columns)), jnp.int8)
    y = jnp.asarray(rng.integers(-127, 128, (columns, 5)), jnp.int8)
    scheme = Scheme("int8", (columns, 5), (0,), dynamic=True)
    weight = QuantizedWeight(Parameter(y.astype(jnp.float32)), scheme)
    exact = weight.multiply(x.astype(jnp.float32))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for product, wanted, given in (
        (ops.matmul, np.asarray(x, int) @ np.asarray(y, int), (x, y)),
        (weight.multiply, exact, (x.astype(jnp.float32),)),
    ):
        np.testing.assert_array_equal(product(*given), wanted)
        text = jax.jit(product).lower(*given).as_text()
        (terms,) = re.findall(r"dot_general.*\(tensor<2x(\d+)xi8>", text)
        assert int(terms) % 4 == 0


def test_the_gradient_of_dynamic_rounding_is_that_of_the_product(rng):
    weight = Parameter(rng.standard_normal((16, 4)).astype(np.float32))
    small = QuantizedWeight(weight, Scheme("int8", (16, 4), (0,), dynamic=True))
    x = jnp.asarray(rng.standard_normal((3, 16)), jnp.float32)
    gradient = jax.grad(lambda x: (small.multiply(x) ** 2).sum())(x)
    wanted = 2 * small.multiply(x) @ small.get_value().T
    np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-4)
