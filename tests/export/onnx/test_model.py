"""Models as ONNX files: what they compute, and how large they are."""

import gc

import jax
import numpy as np
import pytest
from tests.export.catalogue import CASES, draw, randomize

import exburn
from exburn import applications, layers, ops

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def close(path, model, rows, tolerance=1e-5):
    x = draw(model, rows, seed=rows)
    leaves = jax.tree.leaves(x)
    found = exburn.predict(path, leaves if len(leaves) > 1 else leaves[0])
    wanted = model.predict(x, verbose=0)
    if isinstance(found, dict):
        names = list(wanted) if isinstance(wanted, dict) else model.output_names
        wanted = jax.tree.leaves(wanted)
        found = [found[name] for name in sorted(names)] if len(names) > 1 else found
        wanted = [value for _, value in sorted(zip(names, wanted, strict=True))]
    for want, got in zip(jax.tree.leaves(wanted), jax.tree.leaves(found), strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        scale = max(1, np.abs(want).max())
        np.testing.assert_allclose(got, want, tolerance, tolerance * scale)


def test_a_model_of_many_kinds(tmp_path):
    """Convolutions, a loop, attention, lookups; dicts of inputs and of outputs."""
    image, words = (
        exburn.Input((8, 8, 2), name="image"),
        exburn.Input((5,), dtype="int32"),
    )
    h = layers.Conv2D(4, 3, padding="same", use_bias=False)(image)
    h = layers.ReLU()(layers.BatchNormalization()(h))
    h = layers.Conv2DTranspose(3, 3, strides=2, padding="same")(
        layers.MaxPooling2D()(h)
    )
    h = layers.GlobalAveragePooling2D()(
        layers.AveragePooling2D(3, 2, padding="same")(h)
    )
    e = layers.Embedding(9, 4, mask_zero=True)(words)
    e = layers.LayerNormalization()(e + layers.MultiHeadAttention(2, 3)(e, e))
    e = layers.Bidirectional(layers.GRU(3))(e)
    both = ops.concatenate([h, e], -1)
    scores = layers.Dense(3, "softmax")(layers.Dropout(0.5)(both))
    best = ops.argmax(scores, -1)
    model = exburn.Model({"image": image, "words": words}, {"p": scores, "best": best})
    path = tmp_path / "m.onnx"
    report = randomize(model).export(path)
    assert report.inputs["words"] == "int32[batch, 5]" and set(report.outputs) == {
        "p",
        "best",
    }
    assert {"Conv", "ConvTranspose", "MaxPool", "Scan"} <= set(report.operators)
    close(path, model, 7)


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


@pytest.mark.longest
@pytest.mark.parametrize("name", list(CASES))
def test_layers(name, tmp_path):
    model, path = randomize(CASES[name]()), tmp_path / "m.onnx"
    model.export(path, rtol=1e-5)
    for rows in (1, 3, 7):
        close(path, model, rows)
    jax.clear_caches()


SIZES = {"Inception": 96, "Xception": 96, "NASNet": 64}


@pytest.mark.longest
@pytest.mark.parametrize("name", [n for n in dir(applications) if n[0].isupper()])
def test_applications(name, tmp_path):
    size = next((n for start, n in SIZES.items() if name.startswith(start)), 32)
    make, shape = getattr(applications, name), (size, size, 3)
    model = make(weights=None, include_top=False, pooling="avg", input_shape=shape)
    report = model.export(tmp_path / "m.onnx", samples=draw(model, 3))
    assert report.error < 1e-4 and report.bytes < 1.05 * report.weights
    jax.clear_caches()
    gc.collect()
