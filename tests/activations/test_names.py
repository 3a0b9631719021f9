"""Activations by name and as configurations."""

import inspect
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import keras

import exburn
from exburn import activations
from exburn.core import registry
from exburn.core.jax_dispatch import original
from exburn.errors import ArgumentError, ExBurnError, UnknownNameError

FUNCTIONS = sorted(
    set(activations.__all__) - {"acts_on_rows", "get", "serialize", "deserialize"}
)


def test_every_public_name_of_keras_is_here_with_its_arguments(golden):
    def signatures():
        module = keras.activations
        public = [n for n in dir(module) if not n.startswith("_")]
        return {n: str(inspect.signature(getattr(module, n))) for n in public}

    def plain(function):
        parameters = inspect.signature(function).parameters.values()
        return str(
            inspect.Signature([p.replace(annotation=p.empty) for p in parameters])
        )

    theirs = golden(signatures)
    assert set(theirs) <= set(activations.__all__)
    for name in set(theirs) - {"get", "serialize", "deserialize"}:
        assert plain(getattr(activations, name)) == theirs[name], name


def test_get():
    assert activations.get(None) is activations.linear
    assert activations.get("hard_swish") is activations.hard_silu
    assert activations.get(jnp.sin) is jnp.sin
    keras = pytest.importorskip("keras")
    layer = keras.layers.LeakyReLU()
    assert activations.get(layer) is layer
    assert isinstance(activations.get(keras.layers.ReLU), keras.layers.ReLU)
    config = {"module": "builtins", "class_name": "function", "config": "mish"}
    assert activations.get(config) is activations.mish


def test_unknown_names_say_what_is_meant():
    with pytest.raises(UnknownNameError, match="Did you mean .*'leaky_relu'") as caught:
        activations.get("leakyrelu")
    assert str(caught.value).startswith("activations.get: unknown activation")
    for wrong in (3, ["relu"], {"config": "relu"}):
        with pytest.raises(ArgumentError):
            activations.get(wrong)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_config_round_trip(name):
    fn = getattr(activations, name)
    config = json.loads(json.dumps(activations.serialize(fn)))
    assert isinstance(config, str)
    assert activations.deserialize(config) is fn
    # A layer's configuration holds whatever its constructor received.
    assert registry.deserialize(registry.serialize(fn)) is fn


@pytest.mark.parametrize("fn", [jax.nn.relu, jax.nn.gelu, jnp.tanh, jax.nn.silu])
def test_functions_of_jax_round_trip(fn):
    config = json.loads(json.dumps(activations.serialize(fn)))
    assert activations.deserialize(config) is original(fn)  # which takes no symbols


def _cube(x):
    return x**3


def test_custom_functions():
    with pytest.raises(ExBurnError, match="register"):
        activations.serialize(_cube)
    with registry.custom_objects({"_cube": _cube}):
        assert activations.get("_cube") is _cube
    config = {"class_name": "function", "config": "_cube"}
    assert activations.deserialize(config, {"_cube": _cube}) is _cube
    registry.register(_cube, package="own")
    assert activations.deserialize(activations.serialize(_cube)) is _cube


OPTIONS = {"threshold": {"threshold": 0.5, "default_value": 0.0}}
ON_SYMBOLS = sorted(set(activations._names) - {"linear"})


@pytest.mark.parametrize("name", ON_SYMBOLS)
def test_an_activation_is_one_node_of_its_name(name):
    x = exburn.Input((4,))
    function, options = getattr(activations, name), OPTIONS.get(name, {})
    y = function(x, **options)
    alias = {"swish": "silu", "hard_swish": "hard_silu"}.get(name, name)
    assert y.call.callee.name == alias and y.call.args[0] is x
    model = exburn.Model(x, y)
    rows = np.linspace(-2, 2, 8, dtype="float32").reshape(2, 4)
    np.testing.assert_array_equal(model(rows), function(rows, **options))
    again = exburn.Model.from_config(model.get_config())
    assert [node.name for node in again.graph.nodes] == [alias]
    np.testing.assert_array_equal(again(rows), model(rows))


def test_a_file_names_an_activation(tmp_path):
    x = exburn.Input((4,))
    model = exburn.Model(x, activations.leaky_relu(x, negative_slope=0.3))
    model.save(tmp_path / "model.exburn")
    rows = np.array([[-1.0, 2, -3, 4]], "float32")
    again = exburn.load_model(tmp_path / "model.exburn")
    np.testing.assert_allclose(again(rows), [[-0.3, 2, -0.9, 4]], rtol=1e-6)
