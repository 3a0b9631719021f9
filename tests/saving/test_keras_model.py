"""Whole models in ``.keras`` archives that live Keras writes."""

import io
import json
import re
import zipfile

import h5py
import keras
import numpy as np
import pytest
from tests.models import test_keras_configs as models
from tests.saving.watch import Watch, attack

import exburn
from exburn import layers as exburn_layers
from exburn.errors import MissingDependencyError, ModelFormatError

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation", "ignore:You are saving your model as an HDF5"
)
KL, ops = keras.layers, keras.ops
DATA = np.random.default_rng(0).random((8, 6), np.float32)


def stack(rule="adam", **options):
    """A trained model; the names of its layers are those of no other's."""
    layers = [KL.Dense(4, activation="relu"), KL.BatchNormalization(), KL.Dense(2)]
    model = keras.Sequential([keras.Input((6,)), *layers], name="stack")
    model.compile(rule, options.pop("loss", "mse"), **options)
    train(model)
    return model


def train(model):
    model.fit(DATA, DATA[:, :2], batch_size=4, epochs=2, shuffle=False, verbose=0)


def inputs_of(model, rng):
    for symbol in model.inputs:
        shape = (2, *(size or 6 for size in symbol.shape[1:]))
        whole = "int" in symbol.dtype
        yield rng.integers(0, 9, shape) if whole else rng.random(shape, np.float32)


@pytest.mark.parametrize("form", ["keras", "h5"])
@pytest.mark.parametrize("make", models.MODELS)
def test_a_model_of_keras_computes_the_same(make, form, tmp_path):
    theirs = make()
    theirs.save(path := tmp_path / f"m.{form}")
    ours = exburn.load_model(path)
    x = [*inputs_of(theirs, np.random.default_rng(0))]
    x = {"t": x[0]} if make is models.sequences else x if len(x) > 1 else x[0]
    pairs = zip(keras.tree.flatten(ours(x)), keras.tree.flatten(theirs(x)), strict=True)
    for mine, other in pairs:
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
    # It is a model of ours now, and its own files are read as such.
    ours.save(again := tmp_path / f"again.{'keras' if form == 'keras' else 'exburn'}")
    weights = exburn.load_model(again).get_weights()
    assert all(map(np.array_equal, weights, ours.get_weights()))


def test_the_content_tells_what_a_file_is(tmp_path):
    theirs = stack()
    theirs.save(tmp_path / "m.keras")
    (tmp_path / "m.keras").rename(tmp_path / "m.exburn")
    assert exburn.load_model(tmp_path / "m.exburn").name == "stack"


def compiled(k, **options):
    """A model with two outputs; everything that compile takes."""
    L = k.layers
    x = start = k.Input((6,), name="x")
    a = L.Dense(1, activation="sigmoid", name="a")(L.Dense(4)(x))
    model = k.Model(start, {"a": a, "b": L.Dense(3, name="b")(x)})
    model.compile(
        k.optimizers.SGD(k.optimizers.schedules.PolynomialDecay(0.1, 9), clipnorm=1.0),
        {"a": k.losses.BinaryFocalCrossentropy(gamma=1.0), "b": "mse"},
        metrics={"a": [k.metrics.AUC(num_thresholds=9), "accuracy"], "b": ["mae"]},
        weighted_metrics={"b": [k.metrics.MeanSquaredError(name="w")]},
        loss_weights={"a": 2.0, "b": 0.5},
        **options,
    )
    return model


@pytest.mark.parametrize("form", ["keras", "h5"])
def test_settings_of_compile(form, tmp_path):
    theirs = compiled(keras, steps_per_execution=4)
    y = {"a": np.arange(8).reshape(8, 1) % 2, "b": np.ones((8, 3), np.float32)}
    theirs.evaluate(DATA, y, verbose=0)
    theirs.save(path := tmp_path / f"m.{form}")
    ours = exburn.load_model(path)
    expected = theirs.evaluate(DATA, y, verbose=0, return_dict=True)
    found = ours.evaluate(DATA, y, verbose=0, return_dict=True)
    assert found == pytest.approx(expected, rel=1e-4)
    assert ours.optimizer.clipnorm == 1.0 and ours.optimizer.schedule is not None
    assert exburn.load_model(path, compile=False).compiled is False


@keras.saving.register_keras_serializable("archives")
def halved(x):
    return x / 2


class Gain(KL.Layer):
    """A layer of a user's, for Keras."""

    def __init__(self, factor=1.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x):
        return x * self.scale * self.factor

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}

    def save_assets(self, folder):
        with open(f"{folder}/note.txt", "w") as file:
            file.write(str(self.factor))

    def load_assets(self, folder):
        with open(f"{folder}/note.txt") as file:
            self.note = file.read()


Theirs = Gain


def own_gain():
    """The same for ExBurn; files name groups of weights after the class."""

    class Gain(exburn_layers.Layer):
        def __init__(self, factor=1.0, **kwargs):
            super().__init__(**kwargs)
            self.factor = factor

        def build(self, shape):
            self.scale = self.add_weight((shape[-1],), "ones")

        def call(self, x):
            return x * self.scale * self.factor

        def get_config(self):
            return {**super().get_config(), "factor": self.factor}

        save_assets, load_assets = Theirs.save_assets, Theirs.load_assets

    return Gain


def test_classes_and_functions_of_the_users(tmp_path):
    layers = [keras.Input((6,)), Gain(3.0), KL.Dense(2, activation=halved)]
    theirs = keras.Sequential(layers)
    theirs.save(path := tmp_path / "m.keras")
    with pytest.raises(ModelFormatError, match="unknown class 'Gain'"):
        exburn.load_model(path)
    own = {"Gain": own_gain(), "halved": lambda x: x / 2}
    ours = exburn.load_model(path, custom_objects=own)
    np.testing.assert_allclose(ours(DATA), theirs(DATA), rtol=1e-5)
    assert ours.layers[0].note == "3.0"


def test_a_subclassed_model_by_its_shapes(tmp_path):
    def net(k, L, name):
        def __init__(self, units=3, **kwargs):
            k.Model.__init__(self, **kwargs)
            self.units = units
            self.blocks = [[L.Dense(units)], {"out": L.Dense(2)}]

        def call(self, x):
            return self.blocks[1]["out"](self.blocks[0][0](x))

        def get_config(self):
            return {"units": self.units, "name": self.name}

        body = {f.__name__: f for f in (__init__, call, get_config)}
        return type(name, (k.Model,), body)

    theirs = net(keras, KL, "Net")(5)
    theirs(DATA)
    theirs.save(path := tmp_path / "m.keras")
    own = {"Net": net(exburn, exburn_layers, "Net")}
    ours = exburn.load_model(path, custom_objects=own)
    np.testing.assert_allclose(ours(DATA), theirs(DATA), rtol=1e-5)


def test_what_training_had_frozen_is_frozen(tmp_path):
    inner = keras.Sequential([keras.Input((6,)), KL.Dense(3), KL.Dense(3)])
    inner.trainable = False
    inner.layers[1].trainable = True
    theirs = keras.Sequential([keras.Input((6,)), inner, KL.Dense(1)])
    for form in ("keras", "h5"):
        theirs.save(path := tmp_path / f"m.{form}")
        ours = exburn.load_model(path)
        np.testing.assert_allclose(ours(DATA), theirs(DATA), rtol=1e-5)
        counts = [len(m.trainable_weights) for m in (ours, theirs)]
        assert counts[0] == counts[1]


def test_precision_and_masks_of_a_model(tmp_path):
    start = keras.Input((5,), dtype="int32")
    x = KL.Embedding(9, 4, mask_zero=True)(start)
    x = KL.LSTM(3, dtype="mixed_bfloat16")(x)
    theirs = keras.Model(start, KL.Dense(2, dtype="float32")(x))
    theirs.save(path := tmp_path / "m.keras")
    ours = exburn.load_model(path)
    assert ours.layers[2].compute_dtype == "bfloat16"
    x = np.array([[1, 2, 0, 0, 0], [3, 4, 5, 6, 7]])
    np.testing.assert_allclose(ours(x), theirs(x), rtol=2e-2, atol=1e-3)


def test_h5py_is_named_when_it_is_missing(tmp_path, monkeypatch):
    import sys

    stack().save(path := tmp_path / "m.keras")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingDependencyError, match=r"exburn\[keras\]"):
        exburn.load_model(path)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The members of a good archive."""
    path = tmp_path_factory.mktemp("good") / "m.keras"
    stack().save(path)
    assert exburn.load_model(path).count_params() == 46 + 8
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(members, more=(), compression=zipfile.ZIP_STORED):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as archive:
        for name, data in [*members.items(), *more]:
            archive.writestr(name, data)
    return made.getvalue()


def changed(good, change):
    """The archive with another configuration."""
    config = json.loads(good["config.json"])
    config = change(config) or config
    return packed({**good, "config.json": json.dumps(config)})


def put(*keys, value):
    def change(config):
        for key in keys[:-1]:
            config = config[key]
        config[keys[-1]] = value

    return change


DENSE = ("config", "layers", 1)
LAMBDA = {
    "module": "keras.layers",
    "class_name": "Lambda",
    "config": {
        "name": "gadget",
        "function": {"class_name": "__lambda__", "config": {"code": "4wEAAA==\n"}},
    },
}
SYSTEM = {
    "module": "os",
    "class_name": "system",
    "config": "echo",
    "registered_name": "x",
}


def deep(config):
    for _ in range(300):
        config = {"class_name": "Sequential", "config": {"layers": [config]}}
    return config


CONFIGS = {
    "a lambda": put("config", "layers", 2, value=LAMBDA),
    "a class of another module": put("config", "layers", 1, value=SYSTEM),
    "a function of the system": put(*DENSE, "config", "activation", value=SYSTEM | {
        "class_name": "function"}),
    "a layer as large as memory": put(*DENSE, "config", "units", value=10**9),
    "a layer of another size": put(*DENSE, "config", "units", value=5),
    "an unknown class": put(*DENSE, "class_name", value="Evil"),
    "an unknown argument": put(*DENSE, "config", "evil", value=1),
    "a class that is none": put(*DENSE, "class_name", value=["Dense"]),
    "a registered name of ours": put(*DENSE, "registered_name", value="metrics>AUC"),
    "no model": lambda config: {"module": "keras", "class_name": "Adam", "config": {}},
    "no object": lambda config: [1, 2],
    "no layers": put("config", "layers", value=7),
    "deep nesting": deep,
    "too many layers": put("config", "layers", value=[SYSTEM] * 50_000),
    "a metric of a billion thresholds": put("compile_config", "metrics", value=[
        {"class_name": "AUC", "config": {"num_thresholds": 10**9}}]),
    "an optimizer that is none": put("compile_config", "optimizer", value=SYSTEM),
    "a file as a vocabulary": put("config", "layers", 1, value={
        "class_name": "StringLookup", "config": {"vocabulary": "/etc/passwd"}}),
}  # fmt: skip


def archives(good):
    for name, change in CONFIGS.items():
        yield name, changed(good, change)
    weights = good["model.weights.h5"]
    rest = {k: v for k, v in good.items() if k != "model.weights.h5"}
    yield "no weights", packed(rest)
    yield "weights in .npz", packed(rest | {"model.weights.npz": b"PK"})
    yield "no configuration", packed({"model.weights.h5": weights})
    yield "a path out of it", packed(good, [("../evil", b"x")])
    yield "an absolute path", packed(good, [("/tmp/evil", b"x")])
    yield "a path of Windows", packed(good, [("a\\..\\evil", b"x")])
    bomb = {**good, "config.json": b'{"a": ' + b" " * (300 << 20) + b"1}"}
    yield "a packed configuration", packed(bomb, compression=zipfile.ZIP_DEFLATED)
    bomb = {**good, "model.weights.h5": weights + bytes(300 << 20)}
    yield "packed weights", packed(bomb, compression=zipfile.ZIP_DEFLATED)
    yield "no JSON", packed({**good, "config.json": b"{"})
    yield "two keys", packed({**good, "config.json": b'{"a": 1, "a": 2}'})
    yield "no HDF5", packed({**good, "model.weights.h5": b"\x89HDF" + bytes(99)})
    yield "a cut archive", packed(good)[:-40]
    link = zipfile.ZipInfo("assets")
    link.external_attr = 0o120777 << 16
    yield "a link", packed(good, [(link, b"/etc")])


@pytest.fixture(scope="module")
def watch():
    return Watch()


def test_hostile_archives_are_refused(good, tmp_path, watch):
    path, wrong = tmp_path / "m.keras", {}
    for name, data in archives(good):
        found = attack(data, path, watch)
        found = [e for e in found if e[0] != "import"]  # h5py's own, at first
        if found:
            wrong[name] = found
        assert [p.name for p in tmp_path.iterdir()] == ["m.keras"], name
    assert wrong == {}


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_occurs_twice_is_refused(good, tmp_path):
    path = tmp_path / "m.keras"
    path.write_bytes(packed(good, [("config.json", b"{}")]))
    with pytest.raises(ModelFormatError, match="occurs twice"):
        exburn.load_model(path)


def test_a_lambda_is_named_with_its_layer(good, tmp_path):
    path = tmp_path / "m.keras"
    path.write_bytes(changed(good, CONFIGS["a lambda"]))
    with pytest.raises(ModelFormatError, match="Lambda layer 'gadget' holds Python"):
        exburn.load_model(path)


def test_weights_that_are_not_of_the_configuration_are_named(good, tmp_path):
    data = io.BytesIO(good["model.weights.h5"])
    with h5py.File(data, "a") as file:
        del file["layers/dense/vars/1"]
        file["layers/dense/vars/7"] = np.ones(3)
    path = tmp_path / "m.keras"
    path.write_bytes(packed({**good, "model.weights.h5": data.getvalue()}))
    with pytest.raises(ModelFormatError) as info:
        exburn.load_model(path)
    assert re.search(r"without an array: dense\w*/bias", str(info.value))
    assert "layers/dense/vars/7" in str(info.value)
