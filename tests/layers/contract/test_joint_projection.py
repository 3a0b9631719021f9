"""Tests of ``exburn.layers.contract.joint_projection``."""

import numpy as np
import pytest

import exburn as keras
from exburn import layers
from exburn.runtime.kernels import short_attention

X = np.random.default_rng(0).standard_normal((8, 16, 24)).astype("float32")


@pytest.fixture
def kernels(monkeypatch):
    """Lets the kernels take small rows, interpreted; a list of their traces."""
    calls = []

    def options(warps):
        calls.append(warps)
        return {"interpret": True}

    monkeypatch.setattr(short_attention, "options", options)
    monkeypatch.setattr(short_attention, "runs_kernels", lambda **_: True)
    monkeypatch.setattr(short_attention, "_TOKENS", (16,))
    monkeypatch.setattr(short_attention, "_SIZES", (16,))
    monkeypatch.setattr(short_attention, "_PROGRAMS", 1)
    return calls


def trained(layer, call=lambda layer, x: layer(x, x)):
    """Losses of training, and the attention's weights after it."""
    keras.set_random_seed(0)
    x = keras.Input((16, 24))
    y = call(layer(), x)
    model = keras.Model(x, y)
    model.compile("sgd", "mse")
    history = model.fit(X, np.roll(X, 1, 1), batch_size=4, epochs=2, verbose=0)
    return history.history["loss"], model.get_weights()


def attention(**options):
    return lambda: layers.MultiHeadAttention(2, 16, **options)


def test_fit_reads_short_rows_by_the_kernels(kernels, monkeypatch):
    loss, weights = trained(attention())
    assert len(kernels) == 2, "one trace each way"
    monkeypatch.setattr(short_attention, "_TOKENS", ())
    plain_loss, plain_weights = trained(attention())
    assert len(kernels) == 2
    np.testing.assert_allclose(loss, plain_loss, rtol=1e-5)
    for weight, expected in zip(weights, plain_weights, strict=True):
        np.testing.assert_allclose(weight, expected, atol=1e-5)


def causal(layer, x):
    return layer(x, x, use_causal_mask=True)


def two_inputs(layer, x):
    return layer(x, 2 * x)


def with_scores(layer, x):
    return layer(x, x, return_attention_scores=True)[0]


def masked(layer, x):
    z = layers.Masking()(x)
    return layer(z, z)


class Overridden(layers.MultiHeadAttention):
    def _compute_attention(self, *args, **options):
        return super()._compute_attention(*args, **options)


@pytest.mark.parametrize(
    ("layer", "call"),
    [
        (attention(), causal),
        (attention(), two_inputs),
        (attention(), with_scores),
        (attention(), masked),
        (attention(dropout=0.5), None),
        (attention(use_bias=False), None),
        (attention(sliding_window=4), None),
        (attention(value_dim=8), None),
        (attention(rotary=layers.RotaryEmbedding()), None),
        (lambda: layers.GroupQueryAttention(16, 2, 1), None),
        (lambda: Overridden(2, 16), None),
    ],
)
def test_other_attention_is_left_to_xla(kernels, layer, call):
    options = {} if call is None else {"call": call}
    trained(layer, **options)
    assert not kernels


def test_training_with_gradients_of_the_users_own_is_left_to_xla(kernels):
    layer = layers.MultiHeadAttention(2, 16)
    layer(X, X)
    assert not kernels
