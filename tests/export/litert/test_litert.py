"""LiteRT files beside their models, where LiteRT's packages are installed."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError, ExportError, MissingDependencyError
from exburn.export.litert.file import signatures

X = np.random.default_rng(0).standard_normal((11, 8, 8, 3)).astype(np.float32)


def convnet():
    return exburn.Sequential(
        [
            exburn.Input((8, 8, 3), name="image"),
            layers.Conv2D(8, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(4, activation="softmax", name="kind"),
        ],
        name="net",
    )


def test_missing_packages_are_named_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"exburn\[litert\]"):
        convnet().export(tmp_path / "m.tflite")
    assert not list(tmp_path.iterdir())


def test_a_file_has_a_signature_for_each_number_of_rows(tmp_path, litert):
    model, path = convnet(), tmp_path / "m.tflite"
    report = model.export(path, batch_sizes=(1, 4), samples=X)
    assert report.format == "litert"
    assert report.error < 1e-5
    assert report.operators["CONV_2D"] == 2
    assert "ai-edge-litert" in report.checked
    found = signatures(path.read_bytes())
    assert [(each.name, each.rows) for each in found] == [
        ("serving_default", 1),
        ("rows_4", 4),
    ]
    assert found[0].inputs == ("image",)
    assert found[0].outputs == ("kind",)
    wanted = model.predict(X, verbose=0)
    np.testing.assert_allclose(exburn.predict(path, X), wanted, atol=1e-5)
    np.testing.assert_allclose(exburn.predict(path, {"image": X}), wanted, atol=1e-5)


def test_weights_are_in_a_file_once(tmp_path, litert):
    model = exburn.Sequential([exburn.Input((256,)), layers.Dense(1024)])
    report = model.export(tmp_path / "m.tflite", batch_sizes=(1, 8, 32))
    assert report.bytes <= 1.05 * report.weights


@pytest.mark.parametrize("strides", [1, 2, 3])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_transposed_convolutions_with_same_padding(tmp_path, litert, size, strides):
    """LiteRT's converter gives another shape for them, and says nothing."""
    layer = layers.Conv2DTranspose(5, size, strides=strides, padding="same")
    model = exburn.Sequential([exburn.Input((7, 6, 3)), layer])
    x = X[:3, :7, :6]
    report = model.export(tmp_path / "m.tflite", samples=x)
    assert report.error < 1e-5
    found = exburn.predict(tmp_path / "m.tflite", x)
    assert found.shape == (3, 7 * strides, 6 * strides, 5)


def test_recurrences_have_no_loop(tmp_path, litert):
    model = exburn.Sequential(
        [exburn.Input((9, 3)), layers.LSTM(4, return_sequences=True), layers.GRU(3)]
    )
    report = model.export(tmp_path / "m.tflite")
    assert report.error < 1e-5
    assert not {"WHILE", "STABLEHLO_WHILE", "IF"} & set(report.operators)


def test_an_operation_that_cannot_be_expressed_names_its_layer(tmp_path, litert):
    path = tmp_path / "m.tflite"
    path.write_bytes(b"the old file")
    spectrum = layers.Lambda(lambda x: exburn.ops.fft((x, x * 0))[0], name="spectrum")
    model = exburn.Sequential([exburn.Input((8,)), layers.Dense(8), spectrum])
    with pytest.raises(ExportError) as caught:
        model.export(path)
    assert caught.value.layer == "spectrum"
    assert caught.value.primitive == "complex"
    assert path.read_bytes() == b"the old file"
    problems = exburn.export.check(model, "litert")
    assert [(p.layer, p.primitive) for p in problems] == [
        ("spectrum", "complex"),
        ("spectrum", "fft"),
    ]


@pytest.mark.parametrize("quantize", ["int8", "int8_weights"])
def test_int8_files_are_small_and_near(tmp_path, litert, quantize):
    model = exburn.Sequential(
        [
            exburn.Input((8, 8, 3)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(4),
        ]
    )
    path = tmp_path / "m.tflite"
    report = model.export(path, quantize=quantize, samples=X)
    assert report.bytes < 0.35 * report.weights
    wanted = model.predict(X, verbose=0)
    np.testing.assert_allclose(
        exburn.predict(path, X), wanted, atol=0.1 * np.abs(wanted).max()
    )


def test_options_that_cannot_be_are_refused(tmp_path, litert):
    model = convnet()
    for options, says in [
        ({"quantize": "int8"}, "calibrated on samples"),
        ({"quantize": "int3"}, "quantize"),
        ({"batch_sizes": ()}, "numbers of rows"),
        ({"batch_sizes": (2,), "batch_size": 3}, "batch_size=3 fixes"),
    ]:
        with pytest.raises(ArgumentError, match=says):
            model.export(tmp_path / "m.tflite", **options)
    open_ = exburn.Sequential([exburn.Input((None, 3)), layers.Dense(2)])
    with pytest.raises(ArgumentError, match="every size"):
        open_.export(tmp_path / "m.tflite")
    x = np.ones((2, 5, 3), np.float32)
    report = open_.export(tmp_path / "m.tflite", dynamic=None, samples=x)
    assert report.error < 1e-5


def bilinear(size=2, interpolation="bilinear"):
    return layers.UpSampling2D(size, interpolation=interpolation)


def convolution():
    return layers.Conv2D(4, 3, padding="same", activation="relu")


# What integers go through, behind a convolution and before another one.
BETWEEN = {
    "bilinear": lambda: [bilinear()],
    "bicubic": lambda: [bilinear(3, "bicubic")],
    "resizing": lambda: [layers.Resizing(11, 13, interpolation="lanczos3")],
    "maximum behind it": lambda: [bilinear(), layers.MaxPooling2D()],
    "mean behind it": lambda: [bilinear(), layers.AveragePooling2D()],
    "maximum before it": lambda: [layers.MaxPooling2D(), bilinear()],
    "moved axes": lambda: [layers.Permute((2, 1, 3)), layers.MaxPooling2D()],
    "one column": lambda: [layers.AveragePooling2D((1, 28)), layers.Dense(4)],
}


@pytest.mark.parametrize("how", ["float", "int8", "int8_weights", "trained"])
@pytest.mark.parametrize("name", list(BETWEEN))
def test_resized_images_and_windows_are_integers_too(tmp_path, litert, name, how):
    """28 pixels: the weights of a resize take more bytes than what they are made of."""
    x = np.random.default_rng(0).standard_normal((16, 28, 28, 3)).astype(np.float32)
    inner = [convolution(), *BETWEEN[name](), convolution()]
    model = exburn.Sequential([exburn.Input((28, 28, 3)), *inner])
    model.compile("sgd", "mse")
    path, options = tmp_path / "m.tflite", {}
    if how == "trained":
        model = exburn.quantize_aware(model, "int8", calibration=x)
    elif how != "float":
        options = {"quantize": how}
    report = model.export(path, samples=x, **options)
    assert report.error < (1e-5 if how == "float" else 0.02)
    assert "STABLEHLO_REDUCE_WINDOW" not in report.operators
    found, wanted = exburn.predict(path, x), model.predict(x, verbose=0)
    error = np.sqrt(np.mean((found - wanted) ** 2)) / np.abs(wanted).max()
    assert error < (1e-5 if how == "float" else 0.02)


@pytest.mark.parametrize("shape", [(3, 1, 4), (1, 1, 4), (7, 1, 1), (3, 2, 1, 4)])
@pytest.mark.parametrize("how", ["float", "int8", "trained"])
def test_products_along_an_axis_behind_one_of_one_entry(tmp_path, litert, shape, how):
    x = np.random.default_rng(0).standard_normal((32, *shape)).astype(np.float32)
    model = exburn.Sequential(
        [exburn.Input(shape), layers.Dense(4, "relu"), layers.Dense(4)]
    )
    if how == "trained":
        model = exburn.quantize_aware(model, "int8", calibration=x)
    options = {"quantize": "int8"} if how == "int8" else {}
    report = model.export(tmp_path / "m.tflite", samples=x, **options)
    assert report.error < (1e-5 if how == "float" else 0.02)


def test_an_output_may_feed_further_layers(tmp_path, litert):
    """The quantizer would give the float output to the layer in integers."""
    x = np.random.default_rng(0).standard_normal((32, 7, 6)).astype(np.float32)
    symbol = exburn.Input((7, 6))
    first = layers.Permute((2, 1))(layers.Dense(4, "relu")(symbol))
    second = layers.Flatten()(layers.Dense(3)(first))
    model = exburn.Model(symbol, [first, second, layers.Dense(2)(second)])
    report = model.export(tmp_path / "m.tflite", samples=x, quantize="int8")
    assert report.error < 0.02
    found = exburn.predict(tmp_path / "m.tflite", x)
    for got, want in zip(found, model.predict(x, verbose=0), strict=True):
        assert np.abs(got - want).max() < 0.05 * np.abs(want).max()
