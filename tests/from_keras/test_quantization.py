"""The page's section "Quantization"; ``tests/compression/quantization`` has more."""

import zipfile

import numpy as np
import pytest
from tests.from_keras.page import says
from tests.from_keras.small import BOTH, compiled, fit
from tests.saving import keras_quantized_files

import exburn
from exburn.errors import ArgumentError, ModelFormatError

keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation", "ignore:Layer .* does not have a `quantize`"
)  # Keras'
each = pytest.mark.parametrize("framework", BOTH)
RNG = np.random.default_rng(0)
WIDE = RNG.normal(size=(8, 256)).astype("float32")
KERNEL = RNG.normal(size=(256, 64)).astype("float32")


def wide(framework, **settings):
    """A model of one wide kernel."""
    dense = framework.layers.Dense(64, use_bias=False, **settings)
    model = framework.Sequential([framework.Input((256,)), dense])
    model.set_weights([KERNEL])
    return model


def stored(model):
    """The stored weights: their dtype and shape by name."""
    return {
        w.path.split("dense", 1)[-1].split("/", 1)[-1]: (str(w.dtype), tuple(w.shape))
        for w in model.weights
    }


def quantized(framework, model, *args, **kwargs):
    """The quantized model, which in Keras is the model itself."""
    result = model.quantize(*args, **kwargs)
    return result if framework is exburn else model


@says("`model.quantize(mode)` returns another model and leaves its own as it is")
@each
def test_what_quantize_returns(framework):
    model = wide(framework)
    result = model.quantize("int8")
    assert (result is None) == (framework is keras)
    exact = np.array_equal(np.asarray(model(WIDE)), np.asarray(wide(framework)(WIDE)))
    assert exact == (framework is exburn)


@says("`layer.quantize` is in place")
@each
def test_layers_are_quantized_in_place(framework):
    model = wide(framework)
    layer = model.layers[-1]
    assert layer.quantize("int8") is None
    assert layer.quantization_mode == "int8"


@says("Activations can have fixed ranges")
@each
def test_ranges_of_activations(framework):
    """A row's rounding depends on the row alone in Keras; here a range cuts it off."""
    ours, x = framework is exburn, np.ones((2, 256), "float32")
    options = {"calibration": x, "method": "minmax"} if ours else {}
    model = quantized(framework, wide(framework), "int8", **options)
    one, two = (np.asarray(model(v * x[:1])) for v in (1, 2))
    assert np.allclose(two, one if ours else 2 * one, atol=0.2) is True
    assert hasattr(framework, "quantize_aware") == ours


def error(framework, **kwargs):
    """How far a quantized product is off, and whether its inputs were rounded.

    Rows of one large and many tiny values lose the tiny ones if they are rounded.
    """
    model = wide(framework)
    x = np.full((1, 256), 1e-3, "float32")
    x[0, 0] = 1.0
    exact = np.asarray(model(x))
    model = quantized(framework, model, **kwargs)
    large = np.eye(1, 256, dtype="float32")
    found, alone, tiny = (np.asarray(model(v)) for v in (x, large, x - large))
    rounded = abs(found - alone).max() < 0.5 * abs(tiny).max()
    return abs(found - exact).max(), bool(rounded)


@says('`"int8"` stores weights alone; what Keras calls so')
@pytest.mark.parametrize(
    ("framework", "mode", "rounded"),
    [
        (exburn, "int8", False),
        (exburn, "int8_dynamic", True),
        (exburn, None, True),
        (keras, "int8", True),
        (keras, None, True),
    ],
)
def test_what_int8_means(framework, mode, rounded):
    config = framework.quantizers.Int8QuantizationConfig()
    options = {"mode": mode} if mode else {"config": config}
    off, found = error(framework, **options)
    assert off < 0.05 and found == rounded


@says('`"float8"` stores weights in 8 bits for inference')
@each
def test_what_float8_means(framework):
    model = quantized(framework, wide(framework), "float8")
    kernels = {k: v for k, v in stored(model).items() if v[1] in ((64, 256), (256, 64))}
    (dtype, _) = next(iter(kernels.values()))
    assert dtype == ("float8_e4m3fn" if framework is exburn else "float32")
    assert bool(model.trainable_weights) == (framework is keras)


@says("Blocks of int4 (64 weights, in Keras 128) have a scale and no zero")
@each
def test_blocks_of_int4(framework):
    shapes = stored(quantized(framework, wide(framework), "int4"))
    scales = [v[1] for k, v in shapes.items() if k.endswith("scale")]
    assert scales == [(64, 256 // 64) if framework is exburn else (256 // 128, 64)]
    assert any("zero" in k for k in shapes) == (framework is keras)


@says("Convolutions and recurrent layers are quantized as well")
@each
@pytest.mark.parametrize("kind", ["Conv1D", "LSTM"])
def test_other_layers(framework, kind):
    options = {"kernel_size": 3} if kind == "Conv1D" else {}
    layer = getattr(framework.layers, kind)(64, **options)
    model = framework.Sequential([framework.Input((8, 64)), layer])
    model = quantized(framework, model, "int8")
    dtypes = {str(w.dtype) for w in model.weights}
    assert ("int8" in dtypes) == (framework is exburn)


@says('A layer made with a policy such as `"int8_from_float32"`')
@pytest.mark.parametrize("policy", ["int8_from_float32", "int4_from_float32"])
@each
def test_fresh_weights_of_a_policy(framework, policy):
    options = {"name": "d"}
    exact = np.asarray(framework.layers.Dense(64, **options)(WIDE))
    found = np.asarray(framework.layers.Dense(64, dtype=policy, **options)(WIDE))
    if framework is exburn:
        assert 0 < abs(found - exact).max() < 1
    else:
        assert not found.any()


@says("Float16 goes with int8")
@each
def test_half_precision_with_int8(framework):
    if framework is exburn:
        layer = exburn.layers.Dense(64, dtype="int8_from_float16")
        assert str(layer(WIDE).dtype) == "float16"
    else:
        with pytest.raises(ValueError, match="doesn't work well"):
            keras.layers.Dense(64, dtype="int8_from_float16")


@says("What stays exact in a model that was quantized as a whole")
@each
def test_biases_of_quantized_models(framework):
    model = compiled(framework, framework.layers.Dense(64))
    model = quantized(framework, model, "int8")
    model.compile("sgd", "mse", run_eagerly=framework is keras)
    if framework is exburn:
        assert not model.trainable_weights
        with pytest.raises(ArgumentError, match="few bits"):
            fit(model, y=np.ones((48, 64)))
    else:
        assert len(model.trainable_weights) == 1
        fit(model, y=np.ones((48, 64)))


@says("Inputs are rounded row by row to ±127 or not at all")
@each
def test_quantizers_of_inputs(framework):
    q = framework.quantizers
    other = q.Int8QuantizationConfig(
        activation_quantizer=q.AbsMaxQuantizer(axis=-1, value_range=(-60, 60))
    )
    if framework is exburn:
        with pytest.raises(ArgumentError, match="row by row"):
            wide(exburn).quantize(config=other)
    else:
        wide(keras).quantize(config=other)
    plain = q.Int8QuantizationConfig(activation_quantizer=None)
    assert error(framework, config=plain)[1] is False


def calibrated(framework, data, **options):
    """Outputs of a model whose kernel was rounded by GPTQ on data."""
    model = framework.Sequential(
        [
            framework.Input((16,), dtype="int32"),
            framework.layers.Rescaling(0.1),
            framework.layers.Dense(8, use_bias=False),
        ]
    )
    model.set_weights([KERNEL[:16, :8]])
    structure = {
        "pre_block_layers": model.layers[:1],
        "sequential_blocks": model.layers[1:],
    }
    config = framework.quantizers.GPTQConfig(
        data,
        options.pop("tokenizer", str.split),
        num_samples=8,
        sequence_length=16,
        group_size=-1,
        quantization_layer_structure=structure,
        **options,
    )
    small = quantized(framework, model, "gptq", config=config)
    return np.asarray(small(np.eye(16, dtype="int32")))


@says('`"gptq"` and `"awq"` see the data of their configuration')
@each
def test_methods_that_see_data(framework):
    tokens = np.concatenate([RNG.integers(0, 9, (64, 16)), np.ones((64, 16))])
    tokens = tokens.astype("int32")
    found = [
        calibrated(framework, rows, tokenizer=None if framework is exburn else list)
        for rows in (tokens[:64], tokens[64:])
    ]
    assert np.array_equal(*found) == (framework is keras)


@says("`tokenizer` may be a function, or `None` if `dataset` holds numbers")
def test_tokenizers():
    tokens = RNG.integers(0, 9, (8, 16)).astype("int32")
    texts = [" ".join(map(str, row)) for row in tokens]
    found = [
        calibrated(exburn, tokens, tokenizer=None),
        calibrated(exburn, texts, tokenizer=lambda text: list(map(int, text.split()))),
    ]
    np.testing.assert_array_equal(*found)
    np.testing.assert_array_equal(found[0], calibrated(exburn, tokens, tokenizer=None))


@says("`sequential_blocks` are layers of the model; layers in no block keep")
def test_blocks_are_layers_of_the_model():
    model = wide(exburn)
    other = exburn.layers.Dense(64)
    structure = {"pre_block_layers": [], "sequential_blocks": [other]}
    config = exburn.quantizers.GPTQConfig(
        WIDE, None, sequence_length=256, quantization_layer_structure=structure
    )
    with pytest.raises(ArgumentError, match="sequential_blocks|layers of the model"):
        model.quantize("gptq", config=config)
    with pytest.raises(ArgumentError, match="data"):
        model.layers[-1].quantize("gptq")


@says("`.keras` files of models that Keras 3.15 or 3.16 has quantized to `int8`")
@each
def test_files_of_quantized_models(framework, tmp_path):
    if framework is exburn:  # files of Keras are made where it runs
        with zipfile.ZipFile(keras_quantized_files.RECORDED) as file:
            path = file.extract("int4.keras", tmp_path)
        with pytest.raises(ModelFormatError, match="'dense'.*'int4/128_from_float32'"):
            exburn.load_model(path)
        return
    for mode in ("int8", "int4"):
        model = wide(keras)
        model.quantize(mode)
        model.save(tmp_path / f"{mode}.keras")
        expected = np.asarray(model(WIDE))
        found = keras.models.load_model(tmp_path / f"{mode}.keras")(WIDE)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        if mode == "int8":
            found = exburn.load_model(tmp_path / f"{mode}.keras")(WIDE)
            np.testing.assert_allclose(found, expected, atol=1e-4)
