"""``tree``, ``config``, ``backend`` and ``mixed_precision`` beside Keras'."""

import itertools
from collections import OrderedDict, defaultdict, namedtuple

import jax
import keras
import numpy as np
import pytest

import exburn
from exburn import backend, config, errors, mixed_precision, tree
from exburn.layers import Dense

Pair = namedtuple("Pair", "b a")
NESTED = {
    "b": [1, (2, None)],
    "a": Pair(3, 4),
    "o": OrderedDict(z=1, y=2),
    "d": defaultdict(int, k=1),
}


# ---------------------------------------------------------------------- names
def public(module):
    return {n for n in dir(module) if not n.startswith("_")}


@pytest.mark.parametrize("name", ["tree", "config", "backend", "mixed_precision"])
def test_every_name_of_keras_is_here(name):
    ours = {"tree": tree, "config": config, "backend": backend}
    module = ours.get(name, mixed_precision)
    assert public(getattr(keras, name)) - public(module) == set()


def test_the_list_of_random_names():
    assert public(keras.random) - public(exburn.random) == set()


# ---------------------------------------------------------------------- tree
def test_flatten_and_paths():
    assert tree.flatten(NESTED) == keras.tree.flatten(NESTED)
    assert tree.flatten_with_path(NESTED) == keras.tree.flatten_with_path(NESTED)
    assert tree.pack_sequence_as(NESTED, tree.flatten(NESTED)) == NESTED
    assert tree.pack_sequence_as(1, [4]) == 4
    for value in ([], {}, (), "ab", Pair(1, 2), {1}, None, np.ones(2)):
        assert tree.is_nested(value) == keras.tree.is_nested(value)


def test_map():
    def double(x):
        return None if x is None else x * 2

    assert tree.map_structure(double, NESTED) == keras.tree.map_structure(
        double, NESTED
    )
    seven = tree.map_structure(lambda x: 7, NESTED, none_is_leaf=False)
    assert seven["b"] == [7, (7, None)]
    assert isinstance(seven["d"], defaultdict) and isinstance(seven["a"], Pair)
    shallow, deep = [1, [2]], [[1, 2], [{"a": 1}]]
    got = tree.map_structure_up_to(shallow, lambda a, b: (a, b), shallow, deep)
    assert got == [(1, [1, 2]), [(2, {"a": 1})]]
    assert tree.lists_to_tuples(NESTED)["b"] == (1, (2, None))
    shapes = {"a": (None, 2), "b": [(1, 2), [3, None]]}
    assert tree.map_shape_structure(len, shapes) == {"a": 2, "b": [2, 2]}


def test_weights_and_symbols_are_leaves():
    layer = Dense(2)
    layer(np.ones((1, 3)))
    assert tree.flatten({"w": [layer.kernel, layer.bias]}) == [layer.kernel, layer.bias]
    x = exburn.Input((3,))
    assert tree.flatten([x, layer]) == [x, layer]


@pytest.mark.parametrize("top_down", [True, False])
def test_traverse(top_down):
    def total(v):
        whole = isinstance(v, list) and all(isinstance(i, int) for i in v)
        return sum(v) if whole else None

    data = [[1, 2], {"a": [3], "b": "text"}]
    wanted = keras.tree.traverse(total, data, top_down=top_down)
    assert tree.traverse(total, data, top_down=top_down) == wanted
    gone = tree.traverse(lambda v: tree.MAP_TO_NONE if v == "text" else None, data)
    assert gone == [[1, 2], {"a": [3], "b": None}]


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.assert_same_structure([1], (1,)),
        lambda t: t.assert_same_structure({"a": 1}, {"b": 1}),
        lambda t: t.assert_same_paths([1], [1, 2]),
        lambda t: t.pack_sequence_as([1], [1, 2]),
        lambda t: t.map_structure(lambda a, b: a, [1], [1, 2]),
        lambda t: t.map_structure_up_to([1, 2], lambda a: a, [1]),
        lambda t: t.map_structure(1, [1]),
    ],
)
def test_what_both_refuse(call):
    with pytest.raises((ValueError, TypeError)):
        call(keras.tree)
    with pytest.raises(errors.ExBurnError):
        call(tree)


def test_what_both_accept():
    tree.assert_same_structure([1, None], [None, 1])
    tree.assert_same_paths([1], (1,))


# ---------------------------------------------------------------------- config
@pytest.fixture
def settings():
    before, policy = dict(config._settings), config.dtype_policy()
    filtering = jax.config.jax_traceback_filtering
    yield
    config._settings.update(before)
    config.set_dtype_policy(policy)
    jax.config.update("jax_traceback_filtering", filtering)


def test_floatx_reaches_ops_random_and_layers(settings):
    config.set_floatx("bfloat16")
    assert config.floatx() == "bfloat16"
    assert exburn.ops.zeros(2).dtype == exburn.random.normal((2,)).dtype == "bfloat16"
    assert Dense(1).compute_dtype == "bfloat16"


def test_a_chosen_policy_outlasts_floatx(settings):
    mixed_precision.set_global_policy("mixed_bfloat16")
    config.set_floatx("float16")
    assert mixed_precision.global_policy().name == "mixed_bfloat16"
    layer = Dense(1)
    assert (layer.compute_dtype, layer.variable_dtype) == ("bfloat16", "float32")
    assert mixed_precision.Policy("mixed_float16").variable_dtype == "float32"


def test_epsilon_reaches_ops(settings):
    config.set_epsilon(0.25)
    worst = exburn.ops.binary_crossentropy([1.0], [0.0])
    assert float(worst[0]) == pytest.approx(np.log(4))


def test_image_data_format_reaches_ops(settings):
    config.set_image_data_format("channels_first")
    image = np.ones((1, 3, 8, 6), "float32")
    assert exburn.ops.max_pool(image, 2).shape == (1, 3, 4, 3)
    assert exburn.ops.image.resize(image, (2, 5)).shape == (1, 3, 2, 5)


def test_switches(settings):
    for name in ("interactive_logging", "traceback_filtering", "flash_attention"):
        for verb, value in (("disable", False), ("enable", True)):
            getattr(config, f"{verb}_{name}")()
            assert getattr(config, f"is_{name}_enabled")() is value
    config.disable_traceback_filtering()
    assert jax.config.jax_traceback_filtering == "off"
    config.set_max_epochs(3)
    config.set_max_steps_per_epoch(2)
    assert (config.max_epochs(), config.max_steps_per_epoch()) == (3, 2)
    config.set_max_epochs(None)
    assert config.max_epochs() is None
    config.set_backend("jax")
    assert config.backend() == "jax" and config.is_nnx_enabled()


@pytest.mark.parametrize(
    "call",
    [
        lambda: config.set_floatx("int32"),
        lambda: config.set_epsilon(0),
        lambda: config.set_image_data_format("channels"),
        lambda: config.set_max_epochs(0),
        lambda: config.set_max_steps_per_epoch(1.5),
        lambda: config.set_backend("torch"),
        lambda: config.set_dtype_policy("mixed_float8"),
        config.enable_unsafe_deserialization,
    ],
)
def test_config_refuses(call):
    with pytest.raises(errors.ExBurnError):
        call()


# ---------------------------------------------------------------------- backend
def test_result_types_are_those_of_keras():
    names = "bool uint8 int8 int16 uint16 int32 uint32 float16 bfloat16 float32".split()
    for a, b in itertools.product([*names, bool, int, float], repeat=2):
        assert backend.result_type(a, b) == keras.backend.result_type(a, b)


def test_clear_session_keeps_models_working():
    layer = Dense(2)
    before = layer(np.ones((1, 3)))
    backend.clear_session()
    np.testing.assert_array_equal(layer(np.ones((1, 3))), before)
    assert backend.get_uid("fresh") == 1
    assert backend.is_keras_tensor(exburn.Input((2,)))
