"""Tests of ``exburn.layers.contract.recurrent_loop``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.layers.peer import close, data, run

from exburn import layers

X = data(4, 5, 3)
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 1, 0, 1], [0] * 5], bool)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_fused_gradient_is_that_of_the_plain_loop(dtype):
    options = {"return_sequences": True, "return_state": True, "dtype": dtype}
    fused = layers.LSTM(6, recurrent_dropout=0.2, seed=1, **options)
    plain = layers.LSTM(6, recurrent_dropout=0.2, seed=1, use_cudnn=False, **options)
    for layer in (fused, plain):
        layer(X)
    plain.set_weights(fused.get_weights())
    results = [
        run(layer, (X,), {"mask": MASK}, training=True) for layer in (fused, plain)
    ]
    for a, b in zip(*results, strict=True):
        a, b = jax.tree.map(lambda v: v.astype("float32"), (a, b))
        close(a, b, 1e-5 if dtype == "float32" else 0.05)


def test_plain_loop_has_a_forward_derivative():
    layer = layers.LSTM(3, use_cudnn=False)
    layer(X)
    value, tangent = jax.jvp(layer, (jnp.asarray(X),), (jnp.ones(X.shape),))
    step = 1e-2
    numeric = (layer(X + step) - layer(X - step)) / (2 * step)
    np.testing.assert_allclose(tangent, numeric, rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(value, layer(X), rtol=1e-6, atol=1e-7)


def test_gradients_of_gradients():
    layer = layers.GRU(3)
    layer(X)
    once = jax.grad(lambda x: layer(x).sum())
    twice = jax.jit(jax.grad(lambda x: (once(x) ** 2).sum()))(X)
    assert np.isfinite(twice).all()
    assert np.abs(twice).max() > 0


@pytest.mark.parametrize("kind", ["LSTM", "ConvLSTM1D"])
def test_masked_steps_are_as_if_absent(kind):
    x = X if kind == "LSTM" else data(4, 5, 6, 2)
    sizes = (4,) if kind == "LSTM" else (2, 3)
    layer = getattr(layers, kind)(*sizes, return_sequences=True, return_state=True)
    short = layer(x[:, :2])
    mask = np.arange(5)[None].repeat(4, 0) < 2
    wild = np.where(mask.reshape(4, 5, *(1,) * (x.ndim - 2)), x, 1e4)
    long = layer(wild, mask=mask)
    np.testing.assert_allclose(long[0][:, :2], short[0], rtol=1e-5, atol=1e-6)
    for t in (2, 3, 4):  # masked steps repeat the last output
        np.testing.assert_allclose(long[0][:, t], short[0][:, 1], rtol=1e-5, atol=1e-6)
    close(long[1:], short[1:], 1e-5)


def test_zero_output_for_mask():
    layer = layers.LSTM(4, return_sequences=True, zero_output_for_mask=True)
    y = np.array(layer(X, mask=MASK))
    assert (y[~MASK] == 0).all()
    assert (y[MASK] != 0).all()
    last = layers.LSTM(4, zero_output_for_mask=True)
    y = np.array(last(X, mask=MASK))
    assert [bool(row.any()) for row in y] == [True, False, True, False]


def test_calls_outside_of_jit_compile_once():
    layer = layers.LSTM(3, return_sequences=True)
    layer(X, mask=MASK)
    traced = []

    def counted(x):
        traced.append(x)
        return jnp.tanh(x)

    layer.cell.activation = counted
    for scale in (1, 2, 3):
        layer(X * scale, mask=MASK)
    assert len(traced) == 2  # the candidate and the output, in one trace
