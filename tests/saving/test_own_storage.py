"""Layers that save more than weights, by Keras' methods."""

from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

import exburn
from exburn import layers as exburn_layers
from exburn.errors import ArgumentError, FileFormatError, ModelFormatError, ShapeError

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras
X = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")


class Counting(exburn.layers.Dense):
    """Keeps a table beside its weights, and words in a file."""

    def __init__(self, units, **kwargs):
        super().__init__(units, **kwargs)
        self.table, self.words = np.zeros(2), []

    def save_own_variables(self, store):
        super().save_own_variables(store)
        store["table"] = self.table

    def load_own_variables(self, store):
        store = dict(store)
        self.table = store.pop("table")
        super().load_own_variables(store)

    def save_assets(self, folder):
        Path(folder, "lists").mkdir()
        Path(folder, "lists", "words.txt").write_text("\n".join(self.words))
        Path(folder, "empty").touch()

    def load_assets(self, folder):
        assert Path(folder, "empty").exists()
        self.words = Path(folder, "lists", "words.txt").read_text().split("\n")


def model_of(kind=Counting):
    inner = exburn.Sequential([exburn.Input((3,)), kind(2, name="own")], name="inner")
    model = exburn.Sequential([exburn.Input((3,)), inner])
    model.compile("adam", "mse")
    return model


def fill(model):
    layer = model.layers[0].layers[0]
    layer.table, layer.words = np.arange(5), ["one", "two"]
    return layer


def test_a_model_file_gives_all_back(tmp_path):
    model = model_of()
    fill(model)
    model.fit(X, X[:, :2], verbose=0)
    model.save(tmp_path / "m.keras")
    custom = {"Counting": Counting}
    again = exburn.saving.load_model(tmp_path / "m.keras", custom_objects=custom)
    layer = again.layers[0].layers[0]
    np.testing.assert_array_equal(layer.table, np.arange(5))
    assert layer.words == ["one", "two"]
    np.testing.assert_array_equal(
        again.predict(X, verbose=0), model.predict(X, verbose=0)
    )
    assert again.optimizer.iterations == 1


def test_files_of_weights_have_the_arrays(tmp_path):
    model, other = model_of(), model_of()
    fill(model)
    model.save_weights(tmp_path / "m.weights.h5")
    report = other.load_weights(tmp_path / "m.weights.h5")
    assert report.loaded == ["inner/own/kernel", "inner/own/bias"]
    layer = other.layers[0].layers[0]
    np.testing.assert_array_equal(layer.table, np.arange(5))
    assert not layer.words  # files are in files of models, as in Keras
    np.testing.assert_array_equal(
        other.predict(X, verbose=0), model.predict(X, verbose=0)
    )
    plain = model_of(exburn.layers.Dense)
    with pytest.raises(FileFormatError, match="load_own_variables of 'inner/own'"):
        plain.load_weights(tmp_path / "m.weights.h5")


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    class OneWay(exburn.layers.Dense):
        def save_assets(self, folder):
            Path(folder, "a").touch()

    class Words(Counting):
        def save_own_variables(self, store):
            store["words"] = np.array(["a", "b"])

    with pytest.raises(ArgumentError, match="no load_assets"):
        model_of(OneWay).save(tmp_path / "m.exburn")
    for save in ("save", "save_weights"):
        with pytest.raises(ArgumentError, match="'words'(.|\n)*no array of numbers"):
            getattr(model_of(Words), save)(tmp_path / "m.safetensors")
    assert not list(tmp_path.iterdir())


def test_own_weights_by_number():
    layer = exburn.layers.Dense(2)
    layer.build((None, 3))
    store = {}
    layer.save_own_variables(store)
    assert {k: v.shape for k, v in store.items()} == {"0": (3, 2), "1": (2,)}
    layer.load_own_variables({k: v + 1 for k, v in store.items()})
    np.testing.assert_array_equal(layer.bias.numpy(), 1)
    with pytest.raises(ShapeError, match="2 weights"):
        layer.load_own_variables({})


def test_a_file_cannot_write_outside_of_the_folder(tmp_path):
    from exburn.saving.own_storage import give_back

    model = model_of()
    for name in ("../x", "/x", "a\\b"):
        tensors = {f"/assets/inner/own//{name}": np.zeros(1, np.uint8)}
        with pytest.raises(FileFormatError, match="no file of a layer"):
            give_back(model, tensors, "load_model")


@exburn.register
class BuiltWithMore(exburn.layers.Layer):
    """Keras' guide: what its ``build`` was given and more is kept in files."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units, self.extra = units, None

    def build(self, shape):
        self.shape = tuple(shape)
        self.inner = exburn.layers.Dense(self.units)
        self.inner.build(shape)

    def call(self, x):
        return self.inner(x)

    def get_config(self):
        return {**super().get_config(), "units": self.units}

    def get_build_config(self):
        return {"mine": self.shape, "extra": self.extra}

    def build_from_config(self, config):
        self.build(config["mine"])
        self.extra = config["extra"]


def test_build_config_of_a_class_that_says_how_it_is_built(tmp_path):
    x = np.ones((2, 3), np.float32)
    for layers in ([exburn.Input((3,)), BuiltWithMore(2)], [BuiltWithMore(2)]):
        model = exburn.Sequential(layers)
        model(x)
        model.layers[0].extra = 7
        model.save(tmp_path / "m.keras")
        again = exburn.load_model(tmp_path / "m.keras")
        assert again.layers[0].extra == 7
        np.testing.assert_array_equal(again(x), model(x))


def test_build_config_holds_the_shapes():
    class Both(exburn.layers.Layer):
        def build(self, a_shape, b_shape):
            self.w = self.add_weight(shape=(a_shape[-1], b_shape[-1]))

        def call(self, a, b):
            return a @ self.w

    layer = Both()
    assert layer.get_build_config() is None
    layer(np.ones((2, 3)), np.ones((2, 4)))
    config = layer.get_build_config()
    assert config == {"shapes_dict": {"a_shape": (2, 3), "b_shape": (2, 4)}}
    again = Both()
    again.build_from_config(config)
    assert again.w.shape == (3, 4)

    dense = exburn.layers.Dense(2)
    dense.build_from_config({"input_shape": [None, 5]})
    assert dense.kernel.shape == (5, 2)
    assert dense.get_build_config() == {"input_shape": (None, 5)}
    added = exburn.layers.Add()
    added([np.ones((2, 3)), np.ones((2, 3))])
    assert added.get_build_config() == {"input_shape": [(2, 3), (2, 3)]}
    model = exburn.Sequential([dense])
    model.build((None, 5))
    assert model.get_build_config() == {"input_shape": (None, 5)}


def stack(k, shape, *layers):
    return k.Sequential([k.Input(shape), *layers])


def keeping(k, L):
    """A model with layers that store more than weights, and under other names."""

    class Table(L.Layer):
        table = None

        def build(self, shape):
            self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")
            self.inner = L.Dense(2)

        def call(self, x):
            return self.inner(x * self.scale)

        def save_own_variables(self, store):
            super().save_own_variables(store)
            store["table"] = self.table

        def load_own_variables(self, store):
            self.table = np.array(store["table"])
            super().load_own_variables({"0": store["0"]})

    class Named(L.Layer):
        def build(self, shape):
            self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

        def call(self, x):
            return x * self.scale

        def save_own_variables(self, store):
            store["the_scale"] = np.array(self.scale)

        def load_own_variables(self, store):
            self.scale.assign(store["the_scale"])

    return stack(k, (3,), Table(), L.Dense(4), Named())


@pytest.mark.parametrize("name", ["m.keras", "m.weights.h5"])
def test_layers_are_given_what_they_stored_in_files_of_keras(name, tmp_path):
    theirs = keeping(keras, keras.layers)
    theirs.layers[0].table = np.arange(5.0)
    for weight in theirs.weights:
        weight.assign(np.random.default_rng(0).random(tuple(weight.shape)))
    write = theirs.save if name.endswith(".keras") else theirs.save_weights
    write(tmp_path / name)
    ours = keeping(exburn, exburn_layers)
    report = ours.load_weights(tmp_path / name)
    assert report.complete and len(report.loaded) == len(ours.weights)
    np.testing.assert_array_equal(ours.layers[0].table, np.arange(5.0))
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-5)


def test_what_a_layer_stored_may_not_grow_beyond_measure(tmp_path):
    theirs = keeping(keras, keras.layers)
    theirs.layers[0].table = np.zeros(1)
    theirs.save_weights(path := tmp_path / "m.weights.h5")
    with h5py.File(path, "a") as file:
        group = next(g for g in file["layers"].values() if "table" in g["vars"])
        del group["vars/table"]
        chunks = {"chunks": (1 << 20,), "compression": "gzip"}
        group["vars"].create_dataset("table", (1 << 27,), "f8", **chunks)
    with pytest.raises(ModelFormatError, match="would take 1073741824 bytes"):
        keeping(exburn, exburn_layers).load_weights(path)
