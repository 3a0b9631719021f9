"""Arguments that no layer can have, and names that nothing has."""

import pytest
from tests.errors.bench import Case, check_refused, untrained

import exburn
from exburn import activations, initializers, layers, regularizers
from exburn.errors import ArgumentError, SignatureError, UnknownNameError

Input = exburn.Input


LAYERS = {
    "units_0": (lambda: layers.Dense(0), "Dense: units", "received 0"),
    "units_negative": (lambda: layers.Dense(-3), "Dense: units", "received -3"),
    "units_float": (lambda: layers.Dense(2.5), "Dense: units", "received 2.5"),
    "units_bool": (lambda: layers.Dense(True), "Dense: units", "received True"),
    "units_text": (lambda: layers.Dense("ten"), "Dense: units", "received 'ten'"),
    "rate_above_1": (
        lambda: layers.Dropout(1.5),
        "Dropout: rate must be",
        "1.5",
    ),
    "rate_negative": (
        lambda: layers.Dropout(-0.1),
        "Dropout: rate must be",
        "-0.1",
    ),
    "rate_nan": (
        lambda: layers.Dropout(float("nan")),
        "Dropout: rate must be",
        "nan",
    ),
    "rate_text": (
        lambda: layers.Dropout("half"),
        "Dropout: rate must be",
        "'half'",
    ),
    "noise": (lambda: layers.GaussianNoise(-1.0), "GaussianNoise: stddev", "-1.0"),
    "filters": (lambda: layers.Conv2D(0, 3), "Conv2D: filters", "received 0"),
    "kernel_0": (lambda: layers.Conv2D(8, 0), "Conv2D: kernel_size", "0"),
    "kernel_negative": (lambda: layers.Conv2D(8, (3, -1)), "kernel_size", "-1"),
    "kernel_triple": (lambda: layers.Conv2D(8, (3, 3, 3)), "kernel_size", "(3, 3, 3)"),
    "strides": (lambda: layers.Conv2D(8, 3, strides=0), "strides", "received 0"),
    "padding": (lambda: layers.Conv2D(8, 3, padding="full"), "padding", "'full'"),
    "format": (lambda: layers.Conv2D(8, 3, data_format="NHWC"), "data_format", "NHWC"),
    "pool": (lambda: layers.MaxPooling2D(0), "MaxPooling2D: pool_size", "received 0"),
    "embedding": (lambda: layers.Embedding(0, 4), "Embedding: input_dim", "received 0"),
    "lstm": (lambda: layers.LSTM(0), "LSTMCell: units", "received 0"),
    "heads": (
        lambda: layers.MultiHeadAttention(0, 8),
        "MultiHeadAttention: num_heads",
        "received 0",
    ),
    "momentum": (
        lambda: layers.BatchNormalization(momentum=2.0),
        "BatchNormalization: momentum",
        "2.0",
    ),
    "epsilon": (
        lambda: layers.LayerNormalization(epsilon=-1.0),
        "LayerNormalization: epsilon",
        "-1.0",
    ),
    "repeat": (lambda: layers.RepeatVector(-1), "RepeatVector: n", "received -1"),
    "reshape": (lambda: layers.Reshape((-1, -1)), "Reshape", "(-1, -1)"),
    "permute": (lambda: layers.Permute((0, 1)), "Permute", "(0, 1)"),
    "option": (lambda: layers.Dense(3, activaton="relu"), "'activaton'", "activation"),
    "name_slash": (lambda: layers.Dense(3, name="a/b"), "name", "'a/b'"),
    "name_empty": (lambda: layers.Dense(3, name=""), "name", "''"),
    "name_number": (lambda: layers.Dense(3, name=7), "name", "7"),
    "input_none": (lambda: Input(), "Input", "shape"),
    "input_twice": (lambda: Input((3,), batch_shape=(2, 3)), "Input", "batch_shape"),
    "input_text": (lambda: Input(("wide",)), "Input", "'wide'"),
    "input_negative": (lambda: Input((-1,)), "Input", "-1"),
    "policy_seed": (lambda: exburn.set_random_seed("seven"), "seed", "'seven'"),
    "seed_negative": (lambda: exburn.set_random_seed(-1), "seed", "-1"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_an_argument_is_refused(name):
    make, *says = LAYERS[name]
    kind = SignatureError if name == "option" else ArgumentError
    check_refused(Case(lambda b: make(), kind, tuple(says), untrained))


NAMES = {
    "activation": (lambda: layers.Dense(3, activation="rellu"), "'rellu'", "'relu'"),
    "activation_get": (lambda: activations.get("sofmax"), "'sofmax'", "'softmax'"),
    "activation_layer": (lambda: layers.Activation("tahn"), "'tahn'", "'tanh'"),
    "initializer": (
        lambda: layers.Dense(3, kernel_initializer="glorot_unifrom"),
        "'glorot_unifrom'",
        "'glorot_uniform'",
    ),
    "initializer_get": (lambda: initializers.get("hee_normal"), "'he_normal'"),
    "regularizer": (lambda: layers.Dense(3, kernel_regularizer="l3"), "'l3'", "'l2'"),
    "regularizer_get": (lambda: regularizers.get("L22"), "'L22'"),
    "constraint": (
        lambda: layers.Dense(3, kernel_constraint="nonneg"),
        "'nonneg'",
        "non_neg",
    ),
    "policy": (
        lambda: layers.Dense(3, dtype="mixed_float6"),
        "'mixed_float6'",
        "'mixed_float16'",
    ),
    "layer": (
        lambda: exburn.Sequential.from_config(
            {"name": "m", "trainable": True, "layers": [_config("Desne")]}
        ),
        "'Desne'",
        "'Dense'",
    ),
}


def _config(name):
    return {"class_name": name, "config": {"units": 3}}


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_name_is_answered_with_a_known_one(name):
    make, *says = NAMES[name]
    says = ("Did you mean", *says)
    check_refused(Case(lambda b: make(), UnknownNameError, says, untrained))
