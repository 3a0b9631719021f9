"""Quantization written plainly in NumPy."""

import jax.numpy as jnp
import numpy as np

from exburn import Model, layers, ops

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
