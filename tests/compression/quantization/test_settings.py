"""Configurations of quantization: how they are made, described and carried out."""

import numpy as np
import pytest

import exburn
from exburn import quantizers as ours

keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras
theirs = keras.quantizers
BOTH = pytest.mark.parametrize("api", [exburn, keras], ids=["exburn", "keras"])
RNG = np.random.default_rng(1)
W = RNG.normal(size=(64, 48)).astype("float32")
X = RNG.normal(size=(5, 64)).astype("float32")


#: What Keras 3.16 has more than 3.15.1.
NEXT_RELEASE = {"gptq": {"calibration_batch_size": 8}, "awq": {"apply_clip": True}}


def built(api, **options):
    layer = api.layers.Dense(48, use_bias=False, **options)
    layer.build((None, 64))
    layer.set_weights([W])
    return layer


@BOTH
def test_what_configurations_say(api):
    q = api.quantizers
    int8 = q.Int8QuantizationConfig()
    assert int8.mode == "int8" and int8.weight_quantizer is None
    assert isinstance(int8.activation_quantizer, q.AbsMaxQuantizer)
    assert q.Int8QuantizationConfig(activation_quantizer=None).get_config() == {
        "weight_quantizer": None,
        "activation_quantizer": None,
    }
    int4 = q.Int4QuantizationConfig(block_size=32)
    assert (int4.mode, int4.block_size) == ("int4", 32)
    assert int4.get_config()["block_size"] == 32
    assert q.Float8QuantizationConfig().mode == "float8"
    assert q.Float8QuantizationConfig().get_config() == {}
    for config in (int8, int4, q.Float8QuantizationConfig()):
        described = q.serialize(config)
        assert described["class_name"] == type(config).__name__
        again = q.deserialize(described)
        assert type(again) is type(config) and again.get_config() == config.get_config()
    own = q.AbsMaxQuantizer(axis=0)
    base = q.QuantizationConfig
    assert base.weight_quantizer_or_default(int8, own) is own
    assert base.weight_quantizer_or_default(None, own) is own
    assert base.activation_quantizer_or_default(None, own) is own
    assert base.activation_quantizer_or_default(int4, own) is None


@BOTH
def test_what_configurations_with_data_say(api):
    q = api.quantizers
    common = {
        "dataset": None,
        "tokenizer": None,
        "weight_bits": 4,
        "num_samples": 128,
        "sequence_length": 512,
        "group_size": 128,
        "quantization_layer_structure": None,
    }
    gptq = {
        "per_channel": True,
        "hessian_damping": 0.01,
        "symmetric": False,
        "activation_order": False,
    }
    for kind, mode, own in (
        (q.GPTQConfig, "gptq", gptq),
        (q.AWQConfig, "awq", {"num_grid_points": 20}),
    ):
        config = kind(["text"], str.split)
        assert config.mode == mode and config.dataset == ["text"]
        assert config.dtype_policy_string() == f"{mode}/4/128"
        new = NEXT_RELEASE[mode] if api is exburn else {}
        assert config.get_config() == common | own | new  # without the data
        again = kind.from_config(config.get_config() | {"group_size": -1})
        assert again.group_size == -1 and again.dataset is None
        described = q.serialize(config)
        assert described["class_name"] == kind.__name__
        if api is exburn:  # Keras gives the name of the class
            assert type(q.deserialize(described)) is kind


@BOTH
@pytest.mark.parametrize(
    "make",
    [
        lambda q: q.GPTQConfig(None, None, weight_bits=5),
        lambda q: q.GPTQConfig(None, None, num_samples=0),
        lambda q: q.GPTQConfig(None, None, sequence_length=-1),
        lambda q: q.GPTQConfig(None, None, hessian_damping=1.5),
        lambda q: q.GPTQConfig(None, None, group_size=0),
        lambda q: q.AWQConfig(None, None, weight_bits=8),
        lambda q: q.AWQConfig(None, None, num_grid_points=0),
        lambda q: q.AWQConfig(None, None, group_size=-2),
        lambda q: q.Int4QuantizationConfig(block_size=0),
        lambda q: q.Int4QuantizationConfig(q.AbsMaxQuantizer(axis=0)),
        lambda q: q.Int4QuantizationConfig(q.AbsMaxQuantizer(axis=0), block_size=None),
        lambda q: q.Int8QuantizationConfig(
            q.AbsMaxQuantizer(axis=0, value_range=(0, 255), output_dtype="uint8")
        ),
    ],
)
def test_configurations_that_cannot_work(api, make):
    with pytest.raises(ValueError):
        make(api.quantizers)


@BOTH
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"mode": "int3"},
        {"config": 3},
        {"mode": "gptq"},
        {"mode": "int8", "config": "int4 config"},
    ],
)
def test_calls_that_contradict_themselves(api, arguments):
    if arguments.get("config") == "int4 config":
        arguments = arguments | {"config": api.quantizers.Int4QuantizationConfig()}
    with pytest.raises(ValueError):
        built(api).quantize(**arguments)


def both_ways(**options):
    """Outputs, and the policies' names, of a layer that each of us quantizes."""
    found = []
    for api in (exburn, keras):
        layer = built(api)
        layer.quantize(config=api.quantizers.__dict__[options["kind"]](**options["of"]))
        assert layer.quantization_config.mode == options["kind"][:4].lower()
        found.append((np.asarray(layer(X)), layer.dtype_policy.name))
    assert found[0][1] == found[1][1]
    return found[0][0], found[1][0]


def test_weights_alone_in_int8():
    kind = {"kind": "Int8QuantizationConfig", "of": {"activation_quantizer": None}}
    mine, other = both_ways(**kind)
    assert np.abs(mine - X @ W).max() < 0.3
    np.testing.assert_allclose(mine, other, atol=0.3)


def test_inputs_in_int8_as_well():
    mine, other = both_ways(kind="Int8QuantizationConfig", of={})
    np.testing.assert_allclose(mine, other, atol=0.2)
    assert np.abs(mine - X @ W).max() < 0.4


@pytest.mark.parametrize("block", [None, -1, 16, 128])
def test_blocks_of_int4(block):
    mine, other = both_ways(kind="Int4QuantizationConfig", of={"block_size": block})
    exact = X @ W
    # The error of a grid that fits each block is about that of Keras'.
    error = [np.abs(y - exact).mean() for y in (mine, other)]
    assert error[0] < 1.25 * error[1] if block in (None, -1) else error[0] < 1.2


@pytest.mark.parametrize("axis", [0, (0,)])
def test_a_quantizer_of_the_users_rounds_weights_as_in_keras(axis):
    results = []
    for api in (exburn, keras):
        q = api.quantizers
        config = q.Int8QuantizationConfig(
            q.AbsMaxQuantizer(axis=axis, value_range=(-60, 60)), None
        )
        layer = built(api)
        layer.quantize(config=config)
        results.append(np.asarray(layer(X)))
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-4)


def test_a_quantizer_of_the_users_for_int4():
    results = []
    for api in (exburn, keras):
        q = api.quantizers
        weights = q.AbsMaxQuantizer(axis=0, value_range=(-8, 7), output_dtype="int8")
        layer = built(api)
        layer.quantize(config=q.Int4QuantizationConfig(weights, None, None))
        results.append(np.asarray(layer(X)))
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-3)


def test_scales_that_no_product_can_have_are_refused():
    config = ours.Int8QuantizationConfig(ours.AbsMaxQuantizer(axis=-1))
    with pytest.raises(exburn.errors.ArgumentError, match="one scale for each output"):
        built(exburn).quantize(config=config)
    wide = ours.AbsMaxQuantizer(value_range=(-60, 60))
    config = ours.Int8QuantizationConfig(activation_quantizer=wide)
    with pytest.raises(exburn.errors.ArgumentError, match="row by row"):
        built(exburn).quantize(config=config)


def test_models_take_configurations_and_filters(tmp_path):
    dense = exburn.layers.Dense
    model = exburn.Sequential(
        [exburn.Input((64,)), dense(64, name="first"), dense(48, name="second")]
    )
    weights = ours.AbsMaxQuantizer(axis=0)
    config = ours.Int8QuantizationConfig(weights, None)
    small = model.quantize(config=config, filters="^sec")  # found in a name, as Keras
    modes = [layer.quantization_mode for layer in small.layers]
    assert modes == [None, "int8"]
    assert small.layers[1].kernel.scheme.scales == "float32"
    small.save(tmp_path / "small.exburn")
    loaded = exburn.models.load_model(tmp_path / "small.exburn")
    again = exburn.Sequential.from_config(small.get_config())
    again.set_weights(small.get_weights())
    expected = small.predict(X, verbose=0)
    for other in (loaded, again, small.clone()):
        np.testing.assert_array_equal(other.predict(X, verbose=0), expected)
    with pytest.raises(exburn.errors.UnknownNameError):
        model.quantize("int8", filters="third")


def test_a_layer_is_made_with_its_configuration():
    config = ours.Int8QuantizationConfig(activation_quantizer=None)
    layer = exburn.layers.Dense(
        48, dtype="int8_from_float32", quantization_config=config
    )
    layer(X)
    assert not layer.kernel.scheme.dynamic
    described = layer.get_config()
    again = exburn.layers.Dense.from_config(described)
    again(X)
    assert again.kernel.scheme == layer.kernel.scheme
