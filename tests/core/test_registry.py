"""Names in configurations: what they find, and in what order; nothing is imported."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from exburn import layers, losses, metrics
from exburn.core import registry
from exburn.errors import ArgumentError, FileFormatError, UnknownNameError


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    monkeypatch.setattr(registry, "_global_objects", dict(registry._global_objects))


class Mine:
    def __init__(self, size=3):
        self.size = size

    def get_config(self):
        return {"size": self.size}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


def test_objects_are_described_and_made_again_by_their_registered_names():
    registry.register(Mine, package="shop")
    described = registry.serialize([Mine(5), (1, "a"), {"x": None}])
    assert described[0]["registered_name"] == "shop>Mine"
    mine, pair, plain = registry.deserialize(described)
    assert (type(mine), mine.size) == (Mine, 5)
    assert tuple(pair) == (1, "a") and plain == {"x": None}
    assert registry.is_registered("shop>Mine")
    assert registry.registered_name(Mine) == "shop>Mine"


def test_the_last_of_a_name_is_meant():
    """As in Keras: two modules of one package have a class of the same name, say."""

    def kind(number):
        @registry.register(package="shop")
        class Same(layers.Layer):
            def call(self, x):
                return x * number

        return Same

    first, second = kind(2), kind(3)
    assert registry.lookup("shop>Same") is second
    assert registry.registered_name(second) == "shop>Same"
    # A file that names it would be read with the other class.
    assert registry.registered_name(first) != "shop>Same"


def test_the_users_names_go_first_and_hold_in_their_block():
    with registry.custom_objects({"Dense": Mine, "relu": abs}):
        assert registry.find({"class_name": "Dense", "module": "keras.layers"}) is Mine
        assert registry.find_function("relu") is abs
        with registry.custom_objects({"Dense": len}):
            assert registry.lookup("Dense") is len
    assert registry.lookup("Dense") is layers.Dense
    assert registry.custom("Dense") is None


def test_the_module_tells_namesakes_apart():
    for package, owner in (("losses", losses), ("metrics", metrics)):
        config = {"class_name": "Poisson", "module": f"keras.src.{package}.x"}
        assert registry.find(config) is owner.Poisson


def test_functions_of_jax_go_by_their_names_but_none_that_splits():
    assert registry.find_function("jax.numpy.tanh")(0.0) == jnp.tanh(0.0)
    for name in ("jax.numpy.split", "os.system", "jax.numpy.load"):
        with pytest.raises(UnknownNameError):
            registry.find_function(name)


@pytest.mark.parametrize("name", [None, 3, ["Dense"]])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(FileFormatError, match="no name of a class"):
        registry.find({"class_name": name})
    with pytest.raises(FileFormatError, match="no name of a function"):
        registry.find_function(name)


def test_an_unknown_name_tells_similar_ones():
    with pytest.raises(UnknownNameError, match="Dense") as caught:
        registry.lookup("Dnse")
    assert "custom_objects" in str(caught.value)


def test_one_object_that_is_described_twice_is_one_again():
    shared = layers.Dense(2)
    with registry.sharing():
        described = registry.serialize([shared, shared, layers.Dense(2)])
    with registry.sharing():
        one, two, other = registry.deserialize(described)
    assert one is two and other is not one


def test_long_arrays_are_left_out_and_kept():
    with registry.keeping_arrays() as kept:
        described = registry.serialize({"long": np.zeros(300), "short": np.ones(2)})
    (name,) = kept
    assert described["long"]["config"]["value"] == {"$array": name}
    assert kept[name].shape == (300,)
    found = registry.deserialize(registry.serialize(np.arange(3, dtype="int8")))
    assert found.dtype == "int8" and found.tolist() == [0, 1, 2]


def test_functions_without_a_name_make_copies_but_no_files():
    def own():
        return 1

    with pytest.raises(ArgumentError):
        registry.serialize([own])
    with registry.leaving_functions():
        assert registry.deserialize(registry.serialize([own])) == [own]


def test_what_comes_from_a_file_is_known_to():
    assert not registry.from_file()
    with registry.reading_file():
        assert registry.from_file()


def test_snake_case_is_keras():
    for name, wanted in (
        ("Dense", "dense"),
        ("Conv2DTranspose", "conv2d_transpose"),
        ("LSTM", "lstm"),
        ("MyHTTPLayer", "my_http_layer"),
    ):
        assert registry.snake_case(name) == wanted


_LATE_NAMES = """
import importlib, json, pkgutil, sys, exburn
from exburn.core import registry
if "all" in sys.argv:
    for module in pkgutil.walk_packages(exburn.__path__, "exburn."):
        if module.name != "exburn.command_line.demo":
            importlib.import_module(module.name)
    table = registry._registry.items()
    print(json.dumps({name: obj.__module__ for name, obj in table}))
else:
    names = json.load(sys.stdin)
    for name in reversed(names):
        assert registry.is_registered(name), name
        assert registry.lookup(name).__module__ == names[name], name
"""


def test_a_new_process_knows_the_names_of_what_is_not_imported_yet():
    python = [sys.executable, "-c", _LATE_NAMES]
    names = subprocess.run([*python, "all"], check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(python, check=True, input=names)
