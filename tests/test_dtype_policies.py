"""Policies by name, of few bits and by path, against Keras'."""

import copy
import pickle

import numpy as np
import pytest
from tests.golden import keras

import exburn
from exburn.compression.quantization.weight import QuantizedWeight
from exburn.core.precision import PrecisionPolicy

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras


@pytest.fixture(autouse=True)
def precision_as_before():
    """A test may set the process' policy; the next one finds the default."""
    policy, matmul = exburn.get_precision(), exburn.get_matmul_precision()
    yield
    exburn.set_precision(policy)
    exburn.set_matmul_precision(matmul)


BOTH = pytest.mark.parametrize(
    "api",
    [exburn, keras],
    ids=["exburn", "keras"],
)
NAMES = [
    "float32",
    "mixed_bfloat16",
    "int8_from_float32",
    "int8_from_mixed_bfloat16",
    "int4_from_float32",
    "int4/64_from_mixed_bfloat16",
    "int4/-1_from_float32",
    "float8_from_float32",
    "gptq/4/128_from_float32",
    "awq/4/64_from_mixed_bfloat16",
]
X = np.random.default_rng(0).normal(size=(3, 64)).astype("float32")


@pytest.mark.parametrize("name", NAMES)
def test_policies_of_a_name(name):
    ours, theirs = (api.dtype_policies.get(name) for api in (exburn, keras))
    assert type(ours).__name__ in (type(theirs).__name__, "PrecisionPolicy")
    read = "name compute_dtype variable_dtype quantization_mode mode block_size "
    read += "weight_bits group_size amax_history_length"
    for attribute in read.split():
        if hasattr(theirs, attribute):
            assert getattr(ours, attribute) == getattr(theirs, attribute), attribute
    assert ours.get_config() == theirs.get_config()
    assert isinstance(ours, exburn.DTypePolicy)
    described = exburn.dtype_policies.serialize(ours)
    for key in ("class_name", "config"):
        assert described[key] == keras.dtype_policies.serialize(theirs)[key]
    for again in (
        exburn.dtype_policies.deserialize(described),
        exburn.dtype_policies.get(keras.dtype_policies.serialize(theirs)),
        copy.deepcopy(ours),
        pickle.loads(pickle.dumps(ours)),
        PrecisionPolicy.of(ours.identifier),
    ):
        assert again == ours and hash(again) == hash(ours)
    assert sum(ours == exburn.dtype_policies.get(other) for other in NAMES) == 1


@BOTH
@pytest.mark.parametrize(
    "make",
    [
        lambda p: p.get("int8_from_"),
        lambda p: p.get("int8_abc_"),
        lambda p: p.get("mixed_bfloat15"),
        lambda p: p.get("int7_from_float32"),
        lambda p: p.Int4DTypePolicy("int4/0", "float32"),
        lambda p: p.Int4DTypePolicy("int4", "float32"),
        lambda p: p.GPTQDTypePolicy("gptq/5/128", "float32"),
        lambda p: p.AWQDTypePolicy("awq/8/128", "float32"),
        lambda p: p.QuantizedDTypePolicy("int3", "float32"),
        lambda p: p.QuantizedFloat8DTypePolicy("float8", "float32", "512"),
        lambda p: p.DTypePolicy(123),
        lambda p: p.DTypePolicyMap(p.DTypePolicyMap()),
        lambda p: p.DTypePolicyMap("float32", [1]),
    ],
)
def test_what_is_no_policy(api, make):
    with pytest.raises((ValueError, TypeError)):
        make(api.dtype_policies)


def test_named_policies_are_shown_as_in_keras():
    for name in NAMES[2:]:
        assert repr(exburn.dtype_policies.get(name)) == repr(
            keras.dtype_policies.get(name)
        )
    assert repr(exburn.FloatDTypePolicy("float16")) == '<DTypePolicy "float16">'
    assert exburn.FloatDTypePolicy("float16") == exburn.DTypePolicy("float16")
    assert exburn.DTypePolicy("float16") == PrecisionPolicy("float16", "float16")
    assert exburn.DTypePolicy("float32") != PrecisionPolicy(output="float16")


@BOTH
def test_policies_convert_inputs(api):
    policy = api.DTypePolicy("mixed_bfloat16")
    convert = policy.convert_input
    ones = np.ones(2, "float32")
    assert str(convert(ones, True, "bfloat16").dtype) == "bfloat16"
    assert str(convert(ones, False, "bfloat16").dtype) == "float32"
    assert str(convert(np.ones(2, "int32"), True, "bfloat16").dtype) == "int32"
    assert convert(api.KerasTensor((None, 2)), True, "bfloat16").dtype == "bfloat16"
    assert convert("text", True, "bfloat16") == "text"


@BOTH
def test_maps_choose_by_path(api):
    policies = api.dtype_policies.DTypePolicyMap("float32")
    policies["encoder/dense"] = "bfloat16"
    policies["encoder/.*"] = api.DTypePolicy("float16")
    asked = ("encoder/dense", "encoder/query", "decoder", "encoder")
    names = [policies[path].name for path in asked]
    assert names == ["bfloat16", "float16", "float32", "float32"]
    assert len(policies) == 2 and "encoder/.*" in policies
    assert list(policies) == ["encoder/dense", "encoder/.*"]
    assert policies.name == "map_float32" and policies.compute_dtype == "float32"
    for key, value in (("encoder/.*", "float32"), ("new", "float7")):
        with pytest.raises(ValueError):
            policies[key] = value
    policies["encoder/q.*"] = "float32"
    with pytest.raises(ValueError):
        policies["encoder/query"]
    del policies["encoder/q.*"]
    again = api.dtype_policies.DTypePolicyMap.from_config(policies.get_config())
    assert [again[path].name for path in asked] == names
    with pytest.raises(KeyError):
        del policies["nothing"]


@BOTH
@pytest.mark.parametrize(
    "name", ["int8_from_float32", "int8_from_mixed_bfloat16", "int4/32_from_float32"]
)
def test_layers_are_made_with_few_bits(api, name):
    layer = api.layers.Dense(64, dtype=name)
    y = layer(X)
    assert layer.dtype_policy.name == name
    assert layer.quantization_mode == name[:4]
    assert str(y.dtype) == layer.compute_dtype
    assert layer.variable_dtype == "float32"
    assert [tuple(w.shape) for w in layer.trainable_weights] == [(64,)]  # the bias
    config = layer.get_config()["dtype"]
    kind = "Int4DTypePolicy" if "/" in name else "QuantizedDTypePolicy"
    assert config["class_name"] == kind
    again = api.layers.Dense.from_config(layer.get_config())
    assert again.dtype_policy == layer.dtype_policy


def test_fresh_weights_are_those_of_the_exact_layer():
    """In Keras they are zeros, until a file is read."""
    exact, small = exburn.layers.Dense(64, name="d"), None
    for name in ("int8_from_float32", "float8_from_float32", "gptq/4/32_from_float32"):
        small = exburn.layers.Dense(64, dtype=name, name="d")
        difference = np.abs(np.asarray(small(X)) - np.asarray(exact(X))).max()
        assert 0 < difference < 0.3, name
        assert isinstance(small.kernel, QuantizedWeight)


def test_inner_layers_and_layers_without_rules():
    z = np.ones((2, 5, 64), "float32")
    attention = exburn.layers.MultiHeadAttention(4, 16, dtype="int8_from_float32")
    attention(z, z)
    assert attention.query.dtype_policy.name == "int8_from_float32"
    assert attention.query.quantization_mode == "int8"
    recurrent = exburn.layers.LSTM(32, dtype="int4/64_from_float32")
    recurrent(z)
    assert recurrent.cell.quantization_mode == "int4"
    dropout = exburn.layers.Dropout(0.1, dtype="int8_from_float32")
    assert dropout(X).shape == X.shape
    assert dropout.dtype_policy.name == "int8_from_float32"


@BOTH
def test_the_policy_of_the_process(api):
    before = api.config.dtype_policy()
    try:
        api.config.set_dtype_policy("int8_from_float32")
        layer = api.layers.Dense(64)
        layer(X)
        assert layer.dtype_policy.name == "int8_from_float32"
        assert len(layer.trainable_weights) == 1
    finally:
        api.config.set_dtype_policy(before)


@BOTH
def test_a_map_as_the_dtype_of_layers(api):
    policies = api.dtype_policies.DTypePolicyMap(
        "float32",
        {
            "(.*/)?a": api.DTypePolicy("mixed_bfloat16"),
            "(.*/)?b": api.dtype_policies.get("int8_from_float32"),
            "(.*/)?heads/query": api.DTypePolicy("bfloat16"),
        },
    )
    dense = api.layers.Dense
    stack = [dense(64, dtype=policies, name=name) for name in "abc"]
    model = api.Sequential([api.Input((64,)), *stack], name="stack")
    assert all(layer.dtype_policy is policies for layer in model.layers)
    computed = [layer.compute_dtype for layer in model.layers]
    assert computed == ["bfloat16", "float32", "float32"]
    assert model.layers[1].quantization_mode == "int8"
    model.layers[2].dtype_policy = "float16"  # takes its place in the map
    path = "c" if api is exburn else "stack/c"
    assert policies[path].name == model.layers[2].compute_dtype == "float16"
    heads = api.layers.MultiHeadAttention(2, 8, dtype=policies, name="heads")
    heads(np.ones((1, 3, 8)), np.ones((1, 3, 8)))
    assert heads.query_dense.compute_dtype == "bfloat16"
    assert heads.key_dense.compute_dtype == "float32"


@pytest.mark.parametrize("how", ["file", "clone", "config", "deepcopy"])
def test_models_keep_their_policies(how, tmp_path):
    policies = exburn.dtype_policies.DTypePolicyMap(
        "float32", {"b": "int8_from_float32", "c": "mixed_bfloat16"}
    )
    dense = exburn.layers.Dense
    stack = [dense(64, name="a", dtype="int4/32_from_float32"), dense(64, name="b")]
    model = exburn.Sequential(
        [exburn.Input((64,)), *stack, dense(2, name="c")], dtype=policies
    )
    model.compile("sgd", "mse")
    model.fit(X, np.zeros((3, 2)), verbose=0)
    if how == "file":
        model.save(tmp_path / "model.exburn")
        other = exburn.models.load_model(tmp_path / "model.exburn")
    elif how == "config":
        other = exburn.Sequential.from_config(model.get_config())
        other.set_weights(model.get_weights())
    else:
        other = model.clone() if how == "clone" else copy.deepcopy(model)
    expected = [layer.dtype_policy for layer in model.layers]
    names = ["int4/32_from_float32", "int8_from_float32", "mixed_bfloat16"]
    assert [policy.name for policy in expected] == names
    assert [layer.dtype_policy for layer in other.layers] == expected
    assert other.dtype_policy == policies
    np.testing.assert_array_equal(
        other.predict(X, verbose=0), model.predict(X, verbose=0)
    )


@BOTH
def test_a_policy_that_is_set_packs_the_weights(api):
    layer = api.layers.Dense(64)
    layer(X)
    layer.dtype_policy = "int8_from_float32"
    assert layer.quantization_mode == "int8"
    assert len(layer.trainable_weights) == 1
