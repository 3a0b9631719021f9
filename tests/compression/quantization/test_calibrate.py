"""GPTQ and AWQ: weights that are chosen on data, in models and in files."""

import numpy as np
import pytest
from tests.compression.quantization.calibrated import (
    config,
    config_on,
    embedded,
    in_blocks,
    kernels,
)

import exburn
from exburn import errors, layers
from exburn.compression.quantization.calibrate import token_windows
from exburn.compression.quantization.weight import _product_of

keras = pytest.importorskip("keras")
KINDS = pytest.mark.parametrize("kind", ["GPTQConfig", "AWQConfig"])


@KINDS
def test_what_the_model_shows(trained_on_images, images, kind):
    mode = kind.removesuffix("Config").lower()
    config = config_on(trained_on_images, images, kind)
    small = trained_on_images.quantize(mode, config=config, filters="hidden")
    hidden, head = small.layers[1:]
    assert hidden.dtype_policy.name == f"{mode}/4/32_from_float32"
    assert type(hidden.dtype_policy).__name__ == kind.replace("Config", "DTypePolicy")
    assert (hidden.quantization_mode, head.quantization_mode) == (mode, None)
    assert hidden.quantization_config.get_config() == config.get_config() | {
        "quantization_layer_structure": None
    }
    assert trained_on_images.layers[1].quantization_config is None  # a model of its own
    report = small.quantization_report
    assert [row.scheme for row in report.layers] == [f"{mode}/4/32"]
    assert [row.path for row in report.left_alone] == ["head"]
    assert report.layers[0].bytes_after < 0.35 * report.layers[0].bytes_before
    with pytest.raises(errors.ArgumentError, match="1 weights are stored in few bits"):
        small.fit(*images[:2], verbose=0)
    found = small.evaluate(*images[2:], verbose=0, return_dict=True)
    assert found["accuracy"] > 0.9


@KINDS
@pytest.mark.parametrize("group_size", [-1, 24])
def test_files_and_copies_predict_the_same(
    trained_on_images, images, tmp_path, kind, group_size
):
    small = trained_on_images.quantize(
        config=config_on(trained_on_images, images, kind, group_size=group_size)
    )
    small.save(tmp_path / "small.exburn")
    loaded = exburn.saving.load_model(tmp_path / "small.exburn")
    again = exburn.Sequential.from_config(small.get_config())
    again.set_weights(small.get_weights())
    expected = small.predict(images[2], verbose=0)
    for other in (loaded, again, small.clone()):
        np.testing.assert_array_equal(other.predict(images[2], verbose=0), expected)
        for layer, same in zip(small.layers[1:], other.layers[1:], strict=True):
            assert same.dtype_policy == layer.dtype_policy
            assert same.kernel.scheme == layer.kernel.scheme
            described = same.quantization_config.get_config()
            assert described == layer.quantization_config.get_config()
    small.save_weights(tmp_path / "small.weights.h5")
    fresh = exburn.models.clone_model(small)
    fresh.load_weights(tmp_path / "small.weights.h5")
    np.testing.assert_array_equal(fresh.predict(images[2], verbose=0), expected)


def kernel_of_keras(config, kernel, x):
    """The kernel that Keras makes of one on inputs, in float32."""
    from keras.src.quantizers import awq, gptq

    layer = keras.layers.Dense(kernel.shape[1], use_bias=False)
    layer.build((None, len(kernel)))
    layer.set_weights([kernel])
    layer.quantize(config.mode, config=config)
    if config.mode == "gptq":
        method = gptq.GPTQ(layer, config)
        method.update_hessian_with_batch(x)
        method.quantize_and_correct_layer()
    else:
        method = awq.AWQ(layer, config)
        method.update_activation_magnitudes(x)
        method.quantize_layer()
    return np.asarray(layer(np.eye(len(kernel), dtype="float32")))


@pytest.mark.filterwarnings("ignore:__array__ implementation")
@pytest.mark.parametrize(
    "kind, options",
    [
        ("GPTQConfig", {"group_size": -1}),
        ("GPTQConfig", {"group_size": 16, "weight_bits": 3}),
        ("GPTQConfig", {"group_size": -1, "activation_order": True}),
        ("GPTQConfig", {"symmetric": True, "weight_bits": 8}),
        ("AWQConfig", {"group_size": 16}),
        ("AWQConfig", {"group_size": -1}),
    ],
)
def test_the_error_is_not_above_keras(trained_on_images, images, kind, options):
    config = config_on(
        trained_on_images, images, kind, num_samples=len(images[0]), **options
    )
    small = trained_on_images.quantize(config=config, filters="hidden")
    x, exact = (images[0] / 16).astype("float32"), kernels(trained_on_images)[0]
    theirs = getattr(keras.quantizers, kind)(images[0], None, **options)
    peer = kernel_of_keras(theirs, exact, x)
    own = kernels(small)[0]
    ours, others = (np.square(x @ (kernel - exact)).mean() for kernel in (own, peer))
    assert ours < 1.02 * others


def test_the_size_of_batches_does_not_matter(trained_on_images, images):
    found = []
    for size in (1, 8, 7, 1000):  # 20 windows: 7 leaves some over, 1000 takes all
        config = config_on(
            trained_on_images, images, num_samples=20, calibration_batch_size=size
        )
        small = trained_on_images.quantize(config=config, filters="hidden")
        found.append(kernels(small)[0])
    for other in found[1:]:
        same = np.isclose(found[0], other, atol=1e-6)
        assert same.mean() > 0.999  # a last digit may decide how a number is rounded


@pytest.mark.parametrize(
    "options, kind, text",
    [
        ({"data": None}, errors.ArgumentError, "dataset=None"),
        ({"data": "a b c"}, errors.DTypeError, "an iterable of strings"),
        ({"data": 3}, errors.DTypeError, "an iterable of strings"),
        ({"data": []}, errors.DataError, "no tokens"),
        ({"data": [[]]}, errors.DataError, "no tokens"),
        ({"data": [[0.5, 1.0]]}, errors.DataError, r"whole numbers .* 0\.5"),
        ({"data": [[np.nan]]}, errors.DataError, "nan"),
        ({"data": [[1 << 40]]}, errors.DataError, "32 bits"),
        ({"data": [[1j]]}, errors.DTypeError, "complex"),
        ({"data": [[[1], [2, 3]]]}, errors.DTypeError, "no array"),
        ({"data": [{"x": 1}]}, errors.DTypeError, "received dict"),
        ({"data": ["a b"]}, errors.ArgumentError, "need a tokenizer"),
        ({"data": ["a"], "tokenizer": 3}, errors.ArgumentError, "tokenizer=3"),
        ({"data": ["a"], "tokenizer": str}, errors.DTypeError, "whole numbers"),
        ({"quantization_layer_structure": None}, errors.ArgumentError, "as a dict"),
        (
            {"quantization_layer_structure": {"blocks": []}},
            errors.ArgumentError,
            "two keys",
        ),
        (in_blocks([]), errors.ArgumentError, "no sequential_blocks"),
        (in_blocks([layers.Dense(3)]), errors.ArgumentError, "layers of the model"),
        (in_blocks([], [3]), errors.ArgumentError, "sequential_blocks"),
        (in_blocks([layers.Dense(3)], [3]), errors.ArgumentError, "received 3"),
    ],
)
def test_what_is_refused_before_anything_is_copied(options, kind, text, monkeypatch):
    model = embedded()
    told = config(model, **options)
    monkeypatch.setattr("exburn.models.quantizing.twin", None)
    with pytest.raises(kind, match=text):
        model.quantize("gptq", config=told)


def test_layers_that_stay_exact_tell_why():
    tokens = exburn.Input((5,), dtype="int32")
    x = layers.Embedding(9, 8)(tokens)
    shared = layers.EinsumDense("abc,bcd->abd", (None, 16), name="by_place")(x)
    model = exburn.Model(tokens, layers.Dense(16, name="out")(shared))
    told = config(model, **in_blocks([model]))  # the model itself is one block
    small = model.quantize(config=told)
    reasons = {row.path: row.reason for row in small.quantization_report.left_alone}
    assert reasons["by_place"] == "its kernel, inputs and outputs share an axis"
    assert reasons["embedding"].startswith("only Dense and EinsumDense")
    assert small.get_layer("out").quantization_mode == "gptq"


def test_a_computation_in_bfloat16(trained_on_images, images):
    settings = config_on(trained_on_images, images)
    small = trained_on_images.quantize(
        config=settings, compute_dtype="bfloat16", filters="hidden"
    )
    assert small.layers[1].dtype_policy.name.startswith("gptq/4/32_from_")
    assert small.layers[1].compute_dtype == "bfloat16"


@KINDS
@pytest.mark.parametrize("group_size", [-1, 24, 5])
def test_one_row_and_single_rows_read_the_same_numbers(rng, kind, group_size):
    """The product for one row on an accelerator, and rows of a table."""
    mode = kind.removesuffix("Config").lower()
    name = f"{mode}/4/{group_size}_from_float32"
    layer = layers.Dense(32, use_bias=False, dtype=name)
    x = rng.standard_normal((1, 64)).astype("float32")
    expected = np.asarray(layer(x))
    kernel = layer.kernel
    if mode == "awq":
        kernel.factor.set_value(rng.uniform(0.5, 2, 64).astype("float32"))
        expected = x @ np.asarray(kernel)
    single = _product_of(kernel.scheme, vector=True)(x, *kernel._parts())
    np.testing.assert_allclose(single, expected, atol=1e-5)
    rows = kernel.take(np.array([3, 1]), "float32")
    np.testing.assert_allclose(rows, np.asarray(kernel).T[[3, 1]], rtol=1e-6)


def test_strings_become_windows_of_tokens():
    def windows(data, tokenizer=None, **options):
        found = exburn.quantizers.AWQConfig(data, tokenizer, **options)
        return token_windows(found)[:, 0].tolist()

    class Tokenizer:
        def tokenize(self, text):
            return [ord(c) for c in text]

    size = {"num_samples": 2, "sequence_length": 3}
    expected = [[97, 98, 99], [97, 98, 99]]
    for data in (["abc"], iter([b"abc"]), [np.array(["abc", "abc"])]):
        assert windows(data, Tokenizer(), **size) == expected
    assert windows(["ab"], Tokenizer().tokenize, **size) == [[97, 98, 97], [98, 97, 98]]
    pieces = np.arange(30).reshape(10, 3)  # a window each: they stay whole
    assert windows(pieces, **size) == [[0, 1, 2], [27, 28, 29]]
    assert windows([[1.0, 2.0]], num_samples=1, sequence_length=1) == [[1]]
