"""Files of models that Keras has quantized.

Run by Python with Keras 3.16 (``keras-nightly``) and JAX, this file writes
``fixtures/keras_quantized.zip`` anew: ``python tests/saving/keras_quantized_files.py``.
"""

import os
import tempfile
import zipfile
from pathlib import Path

import numpy as np

RECORDED = Path(__file__).with_name("fixtures") / "keras_quantized.zip"


def products(keras):
    layers = keras.layers
    inputs = keras.Input((3, 6))
    x = layers.Dense(5, activation="relu", name="dense")(inputs)
    x = layers.Dense(6, use_bias=False, name="plain")(x)
    for name, equation, shape, bias in (
        ("heads", "abc,cde->abde", (3, 2, 4), "de"),
        ("joined", "abde,def->abf", (3, 6), "f"),
        ("turned", "...a,ba->...b", (3,), None),
        ("swapped", "abc,cd->adb", (2, 3), None),
    ):
        x = layers.EinsumDense(equation, shape, bias_axes=bias, name=name)(x)
    return keras.Model(inputs, x, name="products"), (4, 3, 6)


def each(keras):
    """A matrix for each row, whose inputs are not rounded here."""
    layer = keras.layers.EinsumDense("abc,bcd->abd", (3, 4), name="each")
    return keras.Sequential([keras.Input((3, 6)), layer]), (4, 3, 6)


def tables(keras):
    layers = keras.layers
    inputs = keras.Input((4,), dtype="int32")
    tied = layers.ReversibleEmbedding(7, 6, name="tied")
    untied = layers.ReversibleEmbedding(7, 6, tie_weights=False, name="untied")
    x = layers.Embedding(7, 6, name="table")(inputs)
    outputs = [one(one(inputs), reverse=True) for one in (tied, untied)]
    outputs.append(layers.Dense(2, name="out")(x))
    return keras.Model(inputs, outputs, name="tables"), (3, 4)


def dense(keras):
    layers = keras.layers
    parts = [
        layers.Dense(11, activation="relu", name="dense"),
        layers.Dense(3, name="out"),
    ]
    return keras.Sequential([keras.Input((6,)), *parts], name="dense"), (4, 6)


def adapted(keras):
    """A model with an adapter, whose term Keras adds to the weight in the file."""
    model, shape = dense(keras)
    model.layers[0].enable_lora(2)
    return model, shape


def ternary(keras):
    layer = keras.layers.TernaryDense(11, name="own")
    return keras.Sequential([keras.Input((6,)), layer]), (4, 6)


def attention(keras):
    inputs = keras.Input((3, 4))
    x = keras.layers.MultiHeadAttention(1, 2, name="attention")(inputs, inputs)
    return keras.Model(inputs, x), (4, 3, 4)


FILES = {
    "int8_products": (products, "int8"),
    "int8_products_weights": (products, "weights"),
    "int8_each": (each, "int8"),
    "int8_each_weights": (each, "weights"),
    "int8_tables": (tables, "int8"),
    "int8_inputs": (dense, "inputs"),
    "int8_adapted": (adapted, "int8"),
    "adapted": (adapted, None),
    "int8_attention": (attention, "int8"),
    "ternary": (dense, "ternary"),
    "ternary_own": (ternary, "ternary"),
    "int4": (dense, "int4"),
    "int4_whole": (dense, "whole"),
    "float8": (dense, "float8"),
}


def record():
    """Writes the files, and what Keras computes with them."""
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    own = keras.quantizers
    configs = {
        "weights": own.Int8QuantizationConfig(activation_quantizer=None),
        "inputs": own.Int8QuantizationConfig(
            activation_quantizer=own.AbsMaxQuantizer(value_range=(-63, 63))
        ),
        "whole": own.Int4QuantizationConfig(block_size=None),
    }
    values = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, (make, how) in FILES.items():
            model, shape = make(keras)
            rng = np.random.default_rng(0)
            for weight in model.weights:
                weight.assign(rng.normal(size=weight.shape).astype("float32"))
            x = rng.normal(size=shape).astype("float32")
            if make is tables:
                x = rng.integers(0, 7, shape).astype("int32")
            config = configs.get(how)
            if config is not None:
                model.quantize(config=config)
            elif how is not None:
                model.quantize(how)
            outputs = model(x)
            outputs = outputs if isinstance(outputs, list) else [outputs]
            values[f"{name}/x"] = x
            for number, output in enumerate(outputs):
                values[f"{name}/{number}"] = np.asarray(output)
            model.save(f"{folder}/{name}.keras")
        model, _ = dense(keras)
        model.quantize("int8")
        model.save_weights(f"{folder}/int8.weights.h5")
        np.savez_compressed(f"{folder}/values.npz", **values)
        with zipfile.ZipFile(RECORDED, "w", zipfile.ZIP_DEFLATED) as file:
            for path in sorted(Path(folder).iterdir()):
                file.write(path, path.name)


if __name__ == "__main__":
    record()
