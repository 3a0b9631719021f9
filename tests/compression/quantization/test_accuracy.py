"""Accuracy and bytes of trained models on real digits, scheme by scheme."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import exburn
from exburn import layers
from exburn.module.traversal import iter_weights

# Accuracy that may be lost, and bytes that may remain, as the project promises.
LIMITS = {
    "float16": (0.005, 0.505),
    "bfloat16": (0.005, 0.505),
    "int8": (0.01, 0.30),
    "int8_dynamic": (0.01, 0.30),
    "float8": (0.02, 0.30),
    "int4/32": (0.02, 0.18),
    "int4/64": (0.02, 0.18),
    "int4/128": (0.02, 0.18),
}


def cnn():
    return [
        exburn.Input((8, 8, 1)),
        layers.Conv2D(16, 3, padding="same", activation="relu"),
        layers.Conv2D(32, 3, strides=2, activation="relu"),
        layers.Flatten(),
        layers.Dense(128, "relu"),
        layers.Dense(10),
    ]


def lstm():  # the rows of a digit, one after the other
    return [exburn.Input((8, 8)), layers.LSTM(96), layers.Dense(10)]


def transformer():
    x = layers.Input((8, 8))
    h = layers.Dense(64)(x)
    y = layers.LayerNormalization()(h)
    h = layers.Add()([h, layers.MultiHeadAttention(4, 16)(y, y)])
    y = layers.Dense(128, "gelu")(layers.LayerNormalization()(h))
    h = layers.Add()([h, layers.Dense(64)(y)])
    h = layers.Flatten()(layers.LayerNormalization()(h))
    return exburn.Model(x, layers.Dense(10)(layers.Dense(128, "relu")(h)))


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    x = (data.images / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(x))
    return tuple((x[rows], data.target[rows]) for rows in np.split(order, [1200]))


def train(build, digits, epochs):
    made = build()
    model = exburn.Sequential(made) if isinstance(made, list) else made
    optimizer = exburn.optimizers.Adam(3e-3)
    model.compile(optimizer, "cross_entropy", metrics=["accuracy"], seed=0)
    model.fit(*digits[0], batch_size=64, epochs=epochs, verbose=0)
    return model


def accuracy(model, digits):
    predicted = model.predict(digits[1][0], batch_size=597, verbose=0)
    return float((predicted.astype(np.float32).argmax(-1) == digits[1][1]).mean())


def check(model, digits, scheme, folder):
    exact = accuracy(model, digits)
    dtype, _, block = scheme.partition("/")
    small = model.quantize(dtype, block_size=int(block) if block else None)
    loss, share = LIMITS[scheme]
    assert accuracy(small, digits) >= exact - loss
    for part in (model, small):
        part.save_weights(folder / f"{part is small}.safetensors")
    held = [
        sum(np.array(w.get_raw_value()).nbytes for _, w, _ in iter_weights(m))
        for m in (model, small)
    ]
    assert held[1] <= share * held[0]
    assert held[1] == small.quantization_report.bytes_after
    sizes = [(folder / f"{s}.safetensors").stat().st_size for s in (False, True)]
    assert sizes[1] <= share * sizes[0] + 3000  # names, shapes and digests


def test_a_cnn_in_int4(digits, tmp_path):
    model = train(cnn, digits, 4)
    assert accuracy(model, digits) > 0.9
    check(model, digits, "int4/64", tmp_path)


@pytest.mark.parametrize(
    ("build", "epochs"),
    [
        (cnn, 6),
        (lstm, 12),
        (transformer, 8),
    ],
    ids=["cnn", "lstm", "transformer"],
)
def test_every_scheme_keeps_accuracy(build, epochs, digits, tmp_path):
    model = train(build, digits, epochs)
    assert accuracy(model, digits) > 0.9
    for scheme in LIMITS:
        check(model, digits, scheme, tmp_path)
