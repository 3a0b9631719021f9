"""Models as ONNX files: what they compute, and how large they are."""

import gc
from typing import Any

import jax
import numpy as np
import pytest
from tests.export.catalogue import CASES, draw, randomize

import exburn
from exburn import applications, layers, ops
from exburn.errors import ArgumentError

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def close(report, model, rows, tolerance=1e-5):
    """Compares a file with its model on new rows."""
    x = draw(model, rows, seed=rows)
    leaves = jax.tree.leaves(x)
    found = exburn.predict(report.path, leaves if len(leaves) > 1 else leaves[0])
    if isinstance(found, dict):
        found = [found[name] for name in report.outputs]
    wanted = jax.tree.leaves(model.predict(x, verbose=0))
    for want, got in zip(wanted, jax.tree.leaves(found), strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        scale = max(1, np.abs(want).max())
        np.testing.assert_allclose(got, want, tolerance, tolerance * scale)


def test_a_model_of_many_kinds(tmp_path):
    """Convolutions, a loop, attention, lookups; dicts of inputs and of outputs."""
    image = exburn.Input((8, 8, 2), name="image")
    words = exburn.Input((5,), dtype="int32")
    h = layers.Conv2D(4, 3, padding="same", use_bias=False)(image)
    h = layers.MaxPooling2D()(layers.ReLU()(layers.BatchNormalization()(h)))
    h = layers.Conv2DTranspose(3, 3, strides=2, padding="same")(h)
    h = layers.AveragePooling2D(3, 2, padding="same")(h)
    h = layers.GlobalAveragePooling2D()(h)
    e = layers.Embedding(9, 4, mask_zero=True)(words)
    e = layers.LayerNormalization()(e + layers.MultiHeadAttention(2, 3)(e, e))
    e = layers.Bidirectional(layers.GRU(3))(e)
    both = ops.concatenate([h, e], -1)
    scores = layers.Dense(3, "softmax")(layers.Dropout(0.5)(both))
    best = ops.argmax(scores, -1)
    model = exburn.Model({"image": image, "words": words}, {"p": scores, "best": best})
    path = tmp_path / "m.onnx"
    report = randomize(model).export(path)
    assert report.inputs["words"] == "int32[batch, 5]"
    assert set(report.outputs) == {"p", "best"}
    assert {"Conv", "ConvTranspose", "MaxPool", "Scan"} <= set(report.operators)
    onnx.checker.check_model(str(path), full_check=True)
    close(report, model, 7)


def test_integers_are_as_wide_as_the_model_declares_or_as_asked_for(tmp_path):
    wide = exburn.Input((None,), dtype="int64", name="wide")
    narrow = exburn.Input((2,), dtype="int32", name="narrow")
    table = layers.Embedding(9, 3)
    model = exburn.Model(
        [wide, narrow], [ops.sum(table(wide), 1) + ops.sum(table(narrow), 1), wide + 1]
    )
    path = tmp_path / "m.onnx"
    given = [np.array([[1, 8, 3]]), np.array([[4, 2]])]
    wanted = model.predict(given, verbose=0)
    for options, types in (
        ({}, ["int64", "int32"]),
        ({"integers": "int64"}, ["int64", "int64"]),
        ({"integers": "int32"}, ["int32", "int32"]),
    ):
        report = model.export(path, **options)
        told = [text.partition("[")[0] for text in report.inputs.values()]
        session = onnxruntime.InferenceSession(path)
        there = [value.type for value in session.get_inputs()]
        assert told == types and there == [f"tensor({kind})" for kind in types]
        feed = {
            name: value.astype(kind)
            for name, value, kind in zip(("wide", "narrow"), given, types, strict=True)
        }
        for got, want in zip(session.run(None, feed), wanted, strict=True):
            np.testing.assert_allclose(got, want, atol=1e-6)
        found = exburn.predict(path, [value.astype("int32") for value in given])
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got, want, atol=1e-6)
    with pytest.raises(ArgumentError, match="integers"):
        model.export(path, integers="int8")


def test_halves_are_written_as_float32_and_few_bits_as_they_are(tmp_path):
    path = tmp_path / "m.onnx"
    model = exburn.Sequential(
        [
            exburn.Input((64,)),
            layers.Dense(96, "gelu", dtype="bfloat16"),
            layers.Dense(4, dtype="mixed_float16"),
        ]
    )
    report = model.export(path)  # compared with the model in float32
    assert report.error < 1e-5 and report.weights == 4 * model.count_params()
    assert set(report.outputs.values()) == {"float32[batch, 4]"}
    exact = exburn.Sequential([exburn.Input((256,)), layers.Dense(128, use_bias=False)])
    small = exact.quantize("int8")
    assert small.export(path).bytes < 0.3 * exact.export(tmp_path / "exact.onnx").bytes


def test_a_weight_is_written_once(tmp_path):
    x = exburn.Input((80,))
    dense, path = layers.Dense(80, use_bias=False), tmp_path / "m.onnx"
    model = exburn.Model(x, dense(ops.relu(dense(x))) + ops.matmul(x, x[:1].T))
    report = model.export(path, batch_size=2)
    assert report.bytes < 1.1 * report.weights


def test_open_sizes_are_computed_in_the_file(tmp_path):
    model = exburn.Sequential(
        [
            exburn.Input((None, None, 3)),
            layers.Conv2D(4, 3, strides=2, padding="same"),
            layers.UpSampling2D(2),
            layers.MaxPooling2D(3, 2, padding="same"),
            layers.Reshape((-1, 4)),
        ]
    )
    path = tmp_path / "m.onnx"
    model.export(path)
    x = np.random.default_rng(0).standard_normal((2, 13, 18, 3)).astype(np.float32)
    np.testing.assert_allclose(
        exburn.predict(path, x), model.predict(x, verbose=0), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("name", list(CASES))
def test_layers(name, tmp_path):
    model, path = randomize(CASES[name]()), tmp_path / "m.onnx"
    report = model.export(path, rtol=1e-5)
    onnx.checker.check_model(str(path), full_check=True)
    for rows in (1, 3, 7):
        close(report, model, rows)
    jax.clear_caches()


SIZES = {"Inception": 96, "Xception": 96, "NASNet": 64}
OF_IMAGES = (
    "ConvNeXtTiny ConvNeXtSmall ConvNeXtBase ConvNeXtLarge ConvNeXtXLarge DenseNet121 "
    "DenseNet169 DenseNet201 EfficientNetB0 EfficientNetB1 EfficientNetB2 "
    "EfficientNetB3 EfficientNetB4 EfficientNetB5 EfficientNetB6 EfficientNetB7 "
    "EfficientNetLite0 EfficientNetV2B0 EfficientNetV2B1 EfficientNetV2B2 "
    "EfficientNetV2B3 EfficientNetV2S EfficientNetV2M EfficientNetV2L "
    "InceptionResNetV2 InceptionV3 MobileNet MobileNetV2 MobileNetV3Large "
    "MobileNetV3Small NASNetLarge NASNetMobile ResNet50 ResNet101 ResNet152 ResNet50V2 "
    "ResNet101V2 ResNet152V2 VGG16 VGG19 Xception"
).split()


@pytest.mark.parametrize("name", OF_IMAGES)
def test_applications(name, tmp_path):
    size = next((n for start, n in SIZES.items() if name.startswith(start)), 32)
    make, shape = getattr(applications, name), (size, size, 3)
    model = make(weights=None, include_top=False, pooling="avg", input_shape=shape)
    report = model.export(tmp_path / "m.onnx", samples=draw(model, 3))
    assert report.error < 1e-4 and report.bytes < 1.05 * report.weights
    jax.clear_caches()
    gc.collect()


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "vit"])
def test_transformers(name, tmp_path):
    path = tmp_path / "m.onnx"
    sizes = {"layers": 2, "width": 32, "heads": 4}
    words = {"vocabulary_size": 50, **sizes}
    model = {
        "gpt2": lambda: applications.GPT2(**words, positions=64),
        "llama": lambda: applications.Llama(**words, key_value_heads=2, mlp_width=64),
        "bert": lambda: applications.BERT(**words, mlp_width=64, positions=64),
        "vit": lambda: applications.ViT(
            **sizes, mlp_width=64, patch_size=8, input_shape=(32, 32, 3)
        ),
    }[name]()
    ids = np.random.default_rng(0).integers(0, 50, (3, 9))
    if name == "vit":
        x: Any = draw(model, 3)
    elif name == "bert":
        ones = np.ones_like(ids)
        x = {"input_ids": ids, "attention_mask": ones, "token_type_ids": 0 * ones}
    else:
        x = ids
    if name in ("gpt2", "llama"):
        open_length = exburn.InputSpec(shape=(None, None), dtype="int32")
        report = model.export(path, input_signature=open_length, samples=x)
        x = ids[:, :5]
        assert set(report.inputs.values()) == {"int32[batch, d1]"}
    else:
        model.export(path, samples=x)
    found = exburn.predict(path, x)
    np.testing.assert_allclose(found, model.predict(x, verbose=0), 1e-4, 1e-4)
