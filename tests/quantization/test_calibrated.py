"""GPTQ and AWQ: weights that are chosen on data, in models and in files."""

import jax
import numpy as np
import pytest

import exburn
from exburn import errors, layers
from exburn.module.selection import layer_paths
from exburn.transforms.quantization.weight import QuantizedWeight

keras = pytest.importorskip("keras")

LONG = pytest.mark.long
KINDS = pytest.mark.parametrize("kind", ["GPTQConfig", "AWQConfig"])


@pytest.fixture(scope="module")
def images():
    (x, y), (x_test, y_test) = exburn.datasets.digits.load_data()
    flat = [v.reshape(-1, 64).astype("int32") for v in (x, x_test)]
    return flat[0], y, flat[1], y_test


@pytest.fixture(scope="module")
def trained(images):
    model = exburn.Sequential(
        [
            exburn.Input((64,), dtype="int32"),
            layers.Rescaling(1 / 16),
            layers.Dense(96, "relu", name="hidden"),
            layers.Dense(10, name="head"),
        ]
    )
    model.compile("adam", "cross_entropy", metrics=["accuracy"], seed=0)
    model.fit(*images[:2], epochs=4, verbose=0)
    return model


def config_on(model, images, kind="GPTQConfig", **options):
    structure = {
        "pre_block_layers": model.layers[:1],
        "sequential_blocks": model.layers[1:],
    }
    options = {
        "num_samples": 256,
        "sequence_length": 64,
        "group_size": 32,
        "quantization_layer_structure": structure,
    } | options
    return getattr(exburn.quantizers, kind)(images[0], None, **options)


def kernels(model):
    return [np.asarray(layer.kernel) for layer in model.layers[1:]]


def nearest(model, small):
    """Kernels that are rounded to the nearest number on grids of the same kind."""
    schemes = [layer.kernel.scheme for layer in small.layers[1:]]
    return [
        np.asarray(scheme.decode(*scheme.encode(kernel)))
        for scheme, kernel in zip(schemes, kernels(model), strict=True)
    ]


def errors_on(x, model, *others):
    """Mean squares of what other kernels change of the model's outputs."""
    hidden, head = (np.asarray(layer.bias) for layer in model.layers[1:])

    def run(first, second):
        return np.maximum(x / 16 @ first + hidden, 0) @ second + head

    exact = run(*kernels(model))
    return [np.square(run(*other) - exact).mean() for other in others]


@pytest.mark.parametrize(
    "options, share",
    [
        pytest.param({}, 0.3, marks=LONG),
        ({"activation_order": True, "group_size": 24}, 0.3),
        pytest.param({"weight_bits": 2}, 0.3, marks=LONG),
        pytest.param({"weight_bits": 3, "group_size": -1}, 0.3, marks=LONG),
        pytest.param({"symmetric": True}, 0.3, marks=LONG),
        pytest.param({"per_channel": False}, 0.4, marks=LONG),
        pytest.param({"weight_bits": 8, "group_size": 5}, 0.2, marks=LONG),
    ],
)
def test_gptq_errs_less_than_rounding_to_the_nearest(trained, images, options, share):
    small = trained.quantize("gptq", config=config_on(trained, images, **options))
    for x in (images[0][:300], images[2]):  # seen, and not
        chosen, nearby = errors_on(x, trained, kernels(small), nearest(trained, small))
        assert chosen < share * nearby


def test_awq_errs_less_than_rounding_to_the_nearest(trained, images):
    small = trained.quantize(
        config=config_on(trained, images, "AWQConfig", group_size=-1)
    )
    others = kernels(small), nearest(trained, small)
    chosen, nearby = errors_on(images[0], trained, *others)
    assert chosen < 0.98 * nearby


@KINDS
def test_what_the_model_shows(trained, images, kind):
    mode = kind.removesuffix("Config").lower()
    config = config_on(trained, images, kind)
    small = trained.quantize(mode, config=config, filters="hidden")
    hidden, head = small.layers[1:]
    assert hidden.dtype_policy.name == f"{mode}/4/32_from_float32"
    assert type(hidden.dtype_policy).__name__ == kind.replace("Config", "DTypePolicy")
    assert (hidden.quantization_mode, head.quantization_mode) == (mode, None)
    assert hidden.quantization_config.get_config() == config.get_config() | {
        "quantization_layer_structure": None
    }
    assert trained.layers[1].quantization_config is None  # a model of its own
    report = small.quantization_report
    assert [row.scheme for row in report.layers] == [f"{mode}/4/32"]
    assert [row.path for row in report.skipped] == ["head"]
    assert report.layers[0].bytes_after < 0.35 * report.layers[0].bytes_before
    with pytest.raises(errors.ArgumentError, match="1 weights are stored in few bits"):
        small.fit(*images[:2], verbose=0)
    found = small.evaluate(*images[2:], verbose=0, return_dict=True)
    assert found["accuracy"] > 0.9


@KINDS
@pytest.mark.parametrize("group_size", [-1, 24])
def test_files_and_copies_predict_the_same(trained, images, tmp_path, kind, group_size):
    small = trained.quantize(
        config=config_on(trained, images, kind, group_size=group_size)
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


class Block(layers.Layer):
    """Attention and two projections, as in a transformer."""

    def __init__(self, **options):
        super().__init__(**options)
        self.attention = layers.MultiHeadAttention(2, 16)
        self.wide = layers.Dense(48, activation="gelu")
        self.narrow = layers.EinsumDense("abc,cd->abd", (None, 32), bias_axes="d")

    def build(self, shape):
        self.attention.build(shape, shape)
        self.wide.build(shape)
        self.narrow.build((*shape[:-1], 48))

    def call(self, x):
        x = x + self.attention(x, x)
        return x + self.narrow(self.wide(x)), x  # the first is what the next one gets


class Transformer(exburn.Model):
    """Blocks behind an embedding, which it names itself."""

    def __init__(self, **options):
        super().__init__(**options)
        self.embedding = layers.Embedding(17, 32)
        self.blocks = [Block(name="first"), Block(name="second")]
        self.scores = layers.Dense(17)

    def call(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x, _ = block(x)
        return self.scores(x)

    def get_quantization_layer_structure(self, mode=None):
        assert mode == "gptq"
        return {"pre_block_layers": [self.embedding], "sequential_blocks": self.blocks}


@LONG
def test_a_transformer_tells_its_blocks(images, tmp_path, rng):
    model = Transformer()
    model(images[0][:2])
    model.set_weights(
        [
            w + 0.1 * rng.standard_normal(w.shape).astype("float32")
            for w in model.get_weights()
        ]
    )
    config = exburn.quantizers.GPTQConfig(
        images[0], None, num_samples=64, sequence_length=64, weight_bits=3
    )
    small = model.quantize(config=config)
    packed = {
        path: layer.kernel
        for path, layer in layer_paths(small).items()
        if isinstance(getattr(layer, "kernel", None), QuantizedWeight)
    }
    assert len(packed) == 12  # query, key, value, output and two projections, twice
    plain, parts = model.clone(), layer_paths(model)
    for path, kernel in packed.items():
        encoded = kernel.scheme.encode(parts[path].kernel.get_value())
        layer = layer_paths(plain)[path]
        decoded = np.asarray(kernel.scheme.decode(*encoded))
        layer.set_weights([decoded, np.asarray(parts[path].bias)])
    x = images[2][:64]
    exact = np.asarray(model(x))
    chosen, nearby = (
        np.square(np.asarray(m(x)) - exact).mean() for m in (small, plain)
    )
    assert chosen < 0.5 * nearby
    small.save(tmp_path / "small.exburn")
    loaded = exburn.saving.load_model(
        tmp_path / "small.exburn",
        custom_objects={"Transformer": Transformer, "Block": Block},
    )
    np.testing.assert_array_equal(
        loaded.predict(x, verbose=0), small.predict(x, verbose=0)
    )
    assert small.layers[-1].quantization_mode is None  # in no block


# --------------------------------------------------------------- beside Keras' own
# Its `quantize` watches `call` while layers run `quantized_call`, so that its methods
# see no data and round to the nearest. Here they are given the layer's inputs.


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


@LONG
@pytest.mark.filterwarnings("ignore:__array__ implementation")
@pytest.mark.parametrize(
    "kind, options",
    [
        pytest.param("GPTQConfig", {"group_size": -1}, marks=pytest.mark.longest),
        ("GPTQConfig", {"group_size": 16, "weight_bits": 3}),
        ("GPTQConfig", {"group_size": -1, "activation_order": True}),
        ("GPTQConfig", {"symmetric": True, "weight_bits": 8}),
        ("AWQConfig", {"group_size": 16}),
        ("AWQConfig", {"group_size": -1}),
    ],
)
def test_the_error_is_not_above_keras(trained, images, kind, options):
    config = config_on(trained, images, kind, num_samples=len(images[0]), **options)
    small = trained.quantize(config=config, filters="hidden")
    x, exact = (images[0] / 16).astype("float32"), kernels(trained)[0]
    theirs = getattr(keras.quantizers, kind)(images[0], None, **options)
    peer = kernel_of_keras(theirs, exact, x)
    own = kernels(small)[0]
    if kind == "AWQConfig":  # the same formula
        np.testing.assert_allclose(own, peer, rtol=1e-4, atol=1e-5)
    ours, others = (np.square(x @ (kernel - exact)).mean() for kernel in (own, peer))
    assert ours < 1.02 * others


# ------------------------------------------------------------------------ refusals
def embedded():
    layer = layers.Embedding(9, 8)
    return exburn.Sequential([exburn.Input((5,)), layer, layers.Dense(16)])


def config(model, data=([1, 2, 3],), tokenizer=None, **options):
    structure = {
        "pre_block_layers": model.layers[:1],
        "sequential_blocks": model.layers[1:],
    }
    options = {
        "sequence_length": 5,
        "num_samples": 2,
        "group_size": -1,
        "quantization_layer_structure": structure,
    } | options
    return exburn.quantizers.GPTQConfig(data, tokenizer, **options)


def in_blocks(blocks, before=()):
    return {
        "quantization_layer_structure": {
            "pre_block_layers": list(before),
            "sequential_blocks": blocks,
        }
    }


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


def test_blocks_and_weights_that_do_not_fit(monkeypatch):
    monkeypatch.setattr("exburn.models.quantizing.twin", None)
    model = embedded()
    only = config(model, **in_blocks(model.layers[1:]))  # 5 numbers, not 8
    with pytest.raises(errors.ShapeError):
        model.quantize(config=only)
    failing = config(model, **in_blocks(model.layers[1:], [lambda x: x @ np.ones(3)]))
    with pytest.raises(errors.DataError, match="one after the other"):
        model.quantize(config=failing)
    for data in ([[1, 2, 9]], [[-1, 2, 3]]):
        with pytest.raises(errors.DataError, match="rows for tokens from 0 to 8"):
            model.quantize(config=config(model, data))
    nothing = config(model, **in_blocks(model.layers[:1]))
    with pytest.raises(errors.ArgumentError, match="no layer can be quantized"):
        model.quantize(config=nothing)
    with pytest.raises(errors.ArgumentError, match="contradict"):
        model.quantize("awq", config=config(model))
    with pytest.raises(errors.ArgumentError, match="on data"):
        model.quantize("gptq")
    with pytest.raises(errors.ArgumentError, match="said twice"):
        model.quantize(config=config(model), block_size=32)
    with pytest.raises(errors.ArgumentError, match=r"model\.quantize"):
        model.layers[1].quantize(config=config(model))
    model.layers[1].kernel.set_value(np.full((8, 16), np.nan, "float32"))
    with pytest.raises(errors.ArgumentError, match="NaN"):
        model.quantize(config=config(model))


def test_inputs_that_depend_on_each_other_need_damping():
    model = embedded()
    model.quantize(config=config(model))
    with pytest.raises(errors.ArgumentError, match="depend on each other"):
        model.quantize(config=config(model, hessian_damping=0))


class Looping(layers.Layer):
    """A dense layer that is called row by row."""

    def __init__(self, **options):
        super().__init__(**options)
        self.inner = layers.Dense(16)

    def build(self, shape):
        self.inner.build(shape)

    def call(self, x):
        return jax.lax.map(self.inner, x)


def test_layers_in_a_loop_of_jax_are_told():
    looping = [exburn.Input((5,)), layers.Embedding(9, 8), Looping(name="loop")]
    model = exburn.Sequential(looping)
    with pytest.raises(
        errors.ArgumentError, match="loop of JAX's own(.|\n)*loop/inner"
    ):
        model.quantize(config=config(model))


def test_layers_that_stay_exact_tell_why():
    tokens = exburn.Input((5,), dtype="int32")
    x = layers.Embedding(9, 8)(tokens)
    shared = layers.EinsumDense("abc,bcd->abd", (None, 16), name="by_place")(x)
    model = exburn.Model(tokens, layers.Dense(16, name="out")(shared))
    told = config(model, **in_blocks([model]))  # the model itself is one block
    small = model.quantize(config=told)
    reasons = {row.path: row.reason for row in small.quantization_report.skipped}
    assert reasons["by_place"] == "its kernel, inputs and outputs share an axis"
    assert reasons["embedding"].startswith("only Dense and EinsumDense")
    assert small.get_layer("out").quantization_mode == "gptq"


def test_a_computation_in_bfloat16(trained, images):
    settings = config_on(trained, images)
    small = trained.quantize(
        config=settings, compute_dtype="bfloat16", filters="hidden"
    )
    assert small.layers[1].dtype_policy.name.startswith("gptq/4/32_from_")
    assert small.layers[1].compute_dtype == "bfloat16"


def test_strings_become_windows_of_tokens():
    def windows(data, tokenizer=None, **options):
        found = exburn.quantizers.AWQConfig(data, tokenizer, **options)
        return exburn.transforms.quantization.token_windows(found)[:, 0].tolist()

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
    stored = zip(kernel.scheme.parts, kernel._parts(), strict=True)
    np.testing.assert_allclose(kernel._vector(x, **dict(stored)), expected, atol=1e-5)
    rows = kernel.take(np.array([3, 1]), "float32")
    np.testing.assert_allclose(rows, np.asarray(kernel).T[[3, 1]], rtol=1e-6)
