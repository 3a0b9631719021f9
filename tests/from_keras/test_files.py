"""The page's section "Files"; ``tests/saving`` has more."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.from_keras.page import says
from tests.from_keras.small import BOTH, X, Y, compiled, fit

import exburn
from exburn.errors import ArgumentError, ExBurnError, FileFormatError

keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation", "ignore:You are saving your model as an HDF5"
)  # Keras'
each = pytest.mark.parametrize("framework", BOTH)


def name(framework):
    return framework.__name__


# --------------------------------------------------------------------- export, editing
@says("`export.ExportArchive` writes a folder with a StableHLO program")
def test_an_archive_of_programs(tmp_path):
    pytest.importorskip("flatbuffers")
    model = compiled(exburn)
    rows = [exburn.InputSpec(shape=(None, 4), dtype="float32")]
    archive = exburn.export.ExportArchive()
    archive.track_and_add_endpoint("serve", model, rows)
    archive.write_out(tmp_path / "archive", verbose=False)
    expected = model.predict(X, verbose=0)
    assert (tmp_path / "archive" / "serve.stablehlo").exists()
    model.set_weights([np.zeros((4, 1)), np.zeros(1)])
    loaded = exburn.export.load_archive(tmp_path / "archive")
    np.testing.assert_allclose(loaded.serve(X), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ImportError, match="tensorflow"):
        keras.export.ExportArchive()


@says("`model.export` takes the format from the path's suffix")
def test_an_export(tmp_path):
    pytest.importorskip("onnxruntime")
    model = compiled(exburn)
    report = model.export(tmp_path / "model.onnx")
    assert report.format == "onnx" and report.error < 1e-5
    with pytest.raises(ValueError, match="tf_saved_model"):
        model.export(tmp_path / "model", format="tf_saved_model")
    with pytest.raises(ImportError, match="tensorflow"):
        compiled(keras).export(str(tmp_path / "keras"))


@says("`saving.KerasFileEditor` sees the layers inside of layers")
def test_the_editor_sees_layers_in_layers(tmp_path, capsys):
    pytest.importorskip("h5py")
    inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)], name="inner")

    class Outer(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = keras.layers.Dense(2)

        def build(self, shape):
            self.inner.build(shape)

        def call(self, x):
            return self.inner(x)

    model = keras.Sequential([keras.Input((4,)), inner, Outer()])
    model.save_weights(path := tmp_path / "m.weights.h5")

    def count(entries):
        if not isinstance(entries, dict):
            return 1
        return sum(map(count, entries.values()))

    ours, theirs = (f.saving.KerasFileEditor(str(path)) for f in BOTH)
    assert count(ours.weights_dict) == 4 and count(theirs.weights_dict) == 0
    for framework, editor in zip(BOTH, (ours, theirs), strict=True):
        editor.save(again := tmp_path / f"{name(framework)}.weights.h5")
        seen = exburn.saving.KerasFileEditor(str(again)).weights_dict
        assert count(seen) == (4 if framework is exburn else 0)


# ------------------------------------------------------------------------------ formats
@says("Models and weights are safetensors files, whatever the name given to `save`")
def test_formats(tmp_path):
    from safetensors.numpy import load_file

    model = compiled(exburn)
    for suffix in (".keras", ".exburn", ".safetensors"):
        model.save(path := tmp_path / f"m{suffix}")
        assert load_file(path)
    model.save_weights(path := tmp_path / "m.weights.h5")
    assert {"dense/kernel", "dense/bias"} <= load_file(path).keys()
    for suffix in (".h5", ".hdf5"):
        with pytest.raises(ArgumentError, match="no HDF5 file"):
            model.save(tmp_path / f"m{suffix}")
    theirs = compiled(keras)
    theirs.save(tmp_path / "k.keras")
    assert (tmp_path / "k.keras").read_bytes()[:2] == b"PK"
    theirs.save(tmp_path / "k.h5")
    assert (tmp_path / "k.h5").read_bytes()[1:4] == b"HDF"
    with pytest.raises(ValueError, match="Invalid filepath extension"):
        theirs.save(tmp_path / "k.exburn")


@says("Models and weights are safetensors files, whatever the name given to `save`")
@pytest.mark.parametrize("form", ["k.keras", "k.h5", "k.weights.h5"])
def test_files_of_keras_are_read(form, tmp_path):
    pytest.importorskip("h5py")
    theirs = compiled(keras)
    expected = theirs.predict(X, verbose=0)
    if "weights" in form:
        theirs.save_weights(tmp_path / form)
        ours = compiled(exburn)
        ours.load_weights(tmp_path / form)
    else:
        theirs.save(tmp_path / form)
        ours = exburn.load_model(tmp_path / form)
    np.testing.assert_allclose(ours.predict(X, verbose=0), expected, 1e-4, 1e-5)


@says("There is no `safe_mode=False`: a lambda in a file is refused")
def test_lambdas_in_files(tmp_path):
    theirs = compiled(keras, keras.layers.Lambda(lambda x: 2 * x))
    theirs.save(path := tmp_path / "k.keras")
    with pytest.raises(ExBurnError):
        exburn.load_model(path)
    for load in (exburn.load_model, exburn.saving.load_model):
        with pytest.raises(ArgumentError, match="no unsafe mode"):
            load(path, safe_mode=False)
    with pytest.raises(ValueError, match="Lambda"):
        keras.saving.load_model(path)
    keras.saving.load_model(path, safe_mode=False)
    with pytest.raises(ArgumentError, match="Regi"):
        compiled(exburn, exburn.layers.Lambda(lambda x: 2 * x)).save(tmp_path / "m")


@says("`load_weights` returns a report of what it loaded")
@each
def test_what_loading_returns(framework, tmp_path):
    suffix = ".safetensors" if framework is exburn else ".weights.h5"
    dense = framework.layers.Dense
    saved = compiled(framework, dense(2, name="a"), dense(1, name="b"))
    saved.save_weights(path := tmp_path / f"m{suffix}")
    other = compiled(framework, dense(2, name="a"), dense(3, name="x"), dense(1))
    with pytest.raises((FileFormatError, ValueError)):
        other.load_weights(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        report = other.load_weights(path, skip_mismatch=True)
    np.testing.assert_array_equal(saved.get_weights()[0], other.get_weights()[0])
    if framework is exburn:
        assert report.loaded == ["a/kernel", "a/bias"]
        assert {"x/kernel", "x/bias"} <= set(report.missing)
    else:
        assert report is None


# ------------------------------------------------------------- storage of one's own
def counting(framework):
    """A layer with a table beside its weights, and with words in a file."""

    class Counting(framework.layers.Dense):
        table, words, seen = np.zeros(2), (), ()

        def save_own_variables(self, store):
            super().save_own_variables(store)
            store["table"] = self.table

        def load_own_variables(self, store):
            store = {key: np.asarray(store[key]) for key in store.keys()}
            self.seen = sorted(store)
            self.table = store.pop("table")
            super().load_own_variables(store)

        def save_assets(self, folder):
            Path(folder, "words.txt").write_text(" ".join(self.words))

        def load_assets(self, folder):
            self.words = Path(folder, "words.txt").read_text().split()

    return Counting


def with_storage(framework):
    kind = counting(framework)
    model = compiled(framework, kind(1, name="own"))
    model.layers[-1].table, model.layers[-1].words = np.arange(5.0), ["one", "two"]
    return kind, model


@says("`save_own_variables` and `save_assets` of a layer's own are called")
@each
def test_what_layers_store_themselves(framework, tmp_path):
    kind, model = with_storage(framework)
    model.save(path := tmp_path / "m.keras")
    again = framework.saving.load_model(path, custom_objects={"Counting": kind})
    assert again.layers[-1].words == ["one", "two"]
    np.testing.assert_array_equal(again.layers[-1].table, np.arange(5))
    np.testing.assert_array_equal(again.get_weights()[0], model.get_weights()[0])

    model.save_weights(path := tmp_path / "m.weights.h5")
    other = compiled(framework, kind(1, name="own"))
    other.load_weights(path)
    np.testing.assert_array_equal(other.layers[-1].table, np.arange(5))
    assert not other.layers[-1].words


@says("Weights are saved without them; checkpoints of runs have weights alone")
@each
def test_weights_beside_what_layers_store(framework, tmp_path):
    class Forgetful(framework.layers.Dense):
        def save_own_variables(self, store):
            pass

        def load_own_variables(self, store):
            pass

    suffix = ".safetensors" if framework is exburn else ".weights.h5"
    model, other = (compiled(framework, Forgetful(1)) for _ in range(2))
    model.save_weights(path := tmp_path / f"m{suffix}")
    other.load_weights(path)
    same = (model.get_weights()[0] == other.get_weights()[0]).all()
    assert same == (framework is exburn)


@says("Weights are saved without them; checkpoints of runs have weights alone")
def test_checkpoints_have_weights_alone(tmp_path):
    kind, model = with_storage(exburn)
    backup = exburn.callbacks.ModelCheckpoint(tmp_path / "run")
    fit(model, X, Y, callbacks=[backup])
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    # But for what the run is compared by, which has the layer's options and digests.
    files = [path for path in files if path.name != "run.json"]
    found = b"".join(path.read_bytes() for path in files)
    assert b"own" in found and b"kernel" in found
    names = " ".join(str(path) for path in files).encode()
    assert b"words" not in found + names and b"table" not in found + names


@says("From files that Keras wrote, `load_own_variables` is given all of its layer's")
def test_what_keras_stored(tmp_path):
    pytest.importorskip("h5py")
    _, model = with_storage(keras)
    model.save(path := tmp_path / "k.keras")
    kind = counting(exburn)
    layer = exburn.load_model(path, custom_objects={"Counting": kind}).layers[-1]
    assert layer.seen == ["0", "1", "table"] and layer.words == ["one", "two"]
    np.testing.assert_array_equal(layer.table, np.arange(5))
    np.testing.assert_array_equal(np.asarray(layer.kernel), model.get_weights()[0])


@says("`get_build_config` and `build_from_config` are in files if a class overrides")
@each
def test_configurations_of_builds(framework, tmp_path):
    class Built(framework.layers.Layer):
        extra = None

        def build(self, shape):
            self.size = shape[-1]
            self.w = self.add_weight(shape=(shape[-1], 1), name="w")

        def call(self, x):
            return framework.ops.matmul(x, self.w)

        def get_build_config(self):
            return {"size": self.size, "extra": 7}

        def build_from_config(self, config):
            self.build((None, config["size"]))
            self.built = True
            self.extra = config["extra"]

    model = compiled(framework, Built())
    model.save(path := tmp_path / "m.keras")
    again = framework.saving.load_model(path, custom_objects={"Built": Built})
    assert again.layers[-1].extra == 7
    np.testing.assert_array_equal(again.get_weights()[0], model.get_weights()[0])


@says("`zipped=False` is an error")
@each
def test_folders_as_files(framework, tmp_path):
    model = compiled(framework)
    if framework is exburn:
        with pytest.raises(ArgumentError, match="zipped=False"):
            model.save(tmp_path / "m", zipped=False)
    else:
        model.save(tmp_path / "m", zipped=False)
        assert (tmp_path / "m" / "config.json").exists()


@says("The states of stateful layers are in `variables`, but not in `weights`")
@each
def test_states_of_stateful_layers(framework, tmp_path):
    point = framework.Input((3, 2), batch_size=2)
    lstm = framework.layers.LSTM(2, stateful=True)
    model = framework.Model(point, lstm(point))
    model.compile("sgd", "mse", run_eagerly=framework is keras)
    model.fit(np.ones((2, 3, 2)), np.ones((2, 2)), batch_size=2, verbose=0)
    states = [np.asarray(state) for state in lstm.states]
    assert len(model.weights) == len(model.get_weights()) == 3
    paths = [v.path for v in model.variables if "states" in v.path]
    assert len(paths) == (2 if framework is exburn else 0)
    assert states[0].any() == (framework is exburn)
    model.save(path := tmp_path / "m.keras")
    again = framework.saving.load_model(path).layers[-1]
    np.testing.assert_array_equal(np.asarray(again.states[0]), states[0])
    model.save_weights(path := tmp_path / "m.weights.h5")
    fresh = framework.models.clone_model(model)
    fresh.load_weights(path)
    assert not np.asarray(fresh.layers[-1].states[0]).any()
