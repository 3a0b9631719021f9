"""Weight files of Keras, looked into and changed; Keras' own editor beside ours."""

import numpy as np
import pytest

import exburn
from exburn.errors import ArgumentError, ModelFormatError

keras = pytest.importorskip("keras")
h5py = pytest.importorskip("h5py")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras'


def model_of(api, units=3, nested=False):
    layers = api.layers
    first = [layers.Dense(4, name="x"), layers.BatchNormalization()]
    start = [api.Sequential(first)] if nested else first
    return api.Sequential([api.Input((5,)), *start, layers.Dense(units, name="head")])


@pytest.fixture
def file(tmp_path):
    keras.utils.set_random_seed(0)
    model_of(keras).save_weights(tmp_path / "model.weights.h5")
    return tmp_path / "model.weights.h5"


def flat(tree, start=""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{start}/{key}")
        else:
            yield f"{start}/{key}", value


def both(file):
    return [api.saving.KerasFileEditor(str(file)) for api in (exburn, keras)]


def assert_equal(ours, theirs):
    mine, other = (dict(flat(editor.weights_dict)) for editor in (ours, theirs))
    assert mine.keys() == other.keys()
    for key, value in mine.items():
        np.testing.assert_array_equal(value, other[key])


def test_what_a_file_holds(file, capsys):
    ours, theirs = both(file)
    assert_equal(ours, theirs)
    capsys.readouterr()
    ours.summary()
    shown = capsys.readouterr().out
    assert "Weights structure" in shown and "0: shape=(5, 4), dtype=float32" in shown
    assert shown.count("\n") == 1 + 4 + 8 and "batch_normalization" in shown


def test_archives_are_opened_too(tmp_path, capsys):
    model = model_of(keras)
    model.save(tmp_path / "model.keras")
    ours, theirs = both(tmp_path / "model.keras")
    assert_equal(ours, theirs)
    assert ours.config == theirs.config and ours.metadata == theirs.metadata
    assert "Saved with Keras 3" in capsys.readouterr().out


def test_every_change_is_that_of_keras(file, tmp_path):
    editors = both(file)
    kernel = np.arange(6, dtype="float32").reshape(3, 2)
    for number, editor in enumerate(editors):
        editor.rename_object("dense_1", "moved")
        editor.delete_object("batch_normalization")
        editor.add_object("layers/dense_1", {"0": kernel})
        editor.add_weights("layers/dense_1", {"1": np.ones(2), "2": np.zeros(1)})
        editor.delete_weight("dense_1", "2")
        editor.save(str(tmp_path / f"{number}.weights.h5"))
    assert_equal(*editors)
    for number in range(2):  # what we wrote is read by both, and so is what Keras wrote
        assert_equal(*both(tmp_path / f"{number}.weights.h5"))


def test_layers_inside_of_layers_are_there(tmp_path):
    """Keras' editor passes them by, and so leaves them out of what it saves."""
    model = model_of(keras, nested=True)
    model.save_weights(tmp_path / "nested.weights.h5")
    ours, theirs = both(tmp_path / "nested.weights.h5")
    assert len(dict(flat(ours.weights_dict))) == 8
    assert len(dict(flat(theirs.weights_dict))) == 2
    result = ours.compare(model_of(exburn, nested=True))
    assert result == {"status": "success", "error_count": 0, "match_count": 8}
    ours.save(tmp_path / "again.weights.h5")
    other = model_of(keras, nested=True)
    other.load_weights(tmp_path / "again.weights.h5")
    for mine, theirs in zip(other.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("api", [exburn, keras], ids=["exburn", "keras"])
def test_an_edited_file_is_loaded_by_both(file, tmp_path, api):
    editor = exburn.saving.KerasFileEditor(file)
    new = np.random.default_rng(0).normal(size=(4, 2)).astype("float32")
    editor.add_weights("dense_1", {"0": new, "1": np.ones(2, "float32")})
    editor.resave_weights(tmp_path / "edited.weights.h5")
    model = model_of(api, units=2)
    model.load_weights(tmp_path / "edited.weights.h5")
    head = model.layers[-1]
    np.testing.assert_array_equal(np.asarray(head.kernel), new)
    before = model_of(keras)
    before.load_weights(file)
    np.testing.assert_array_equal(
        np.asarray(model.get_weights()[0]), before.get_weights()[0]
    )


def test_comparing_with_a_model(file):
    ours, theirs = both(file)
    for units, errors, matches in ((3, 0, 8), (7, 4, 6)):  # Keras counts some twice
        mine = ours.compare(model_of(exburn, units))
        other = theirs.compare(model_of(keras, units))
        assert mine["status"] == other["status"]
        assert mine["error_count"] == errors // 2 and mine["match_count"] == matches
    for editor, api in ((ours, exburn), (theirs, keras)):
        editor.delete_object("layers/dense")
        assert editor.compare(model_of(api))["status"] == "error"


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e.rename_object("nothing", "other"),
        lambda e: e.rename_object("layers/dense", "a/b"),
        lambda e: e.delete_object("layers/nothing"),
        lambda e: e.delete_object("0"),  # of many objects
        lambda e: e.delete_weight("layers/dense", "9"),
        lambda e: e.add_weights("layers/dense", [np.ones(2)]),
        lambda e: e.add_object("layers/none/dense", {"0": np.ones(2)}),
        lambda e: e.add_object("layers/other", np.ones(2)),
        lambda e: e.save("weights.h5"),
    ],
)
@pytest.mark.parametrize("ours", [True, False])
def test_refused_changes(file, change, ours):
    editor = both(file)[0 if ours else 1]
    before = dict(flat(editor.weights_dict))
    with pytest.raises(ValueError):
        change(editor)
    assert dict(flat(editor.weights_dict)).keys() == before.keys()


def test_files_that_are_not_opened(tmp_path, file):
    with pytest.raises(ArgumentError, match="ends? in"):
        model_of(exburn).save_weights(tmp_path / "own.safetensors")
        exburn.saving.KerasFileEditor(tmp_path / "own.safetensors")
    (tmp_path / "text.weights.h5").write_text("no HDF5 file")
    with pytest.raises(ModelFormatError, match="damaged"):
        exburn.saving.KerasFileEditor(tmp_path / "text.weights.h5")
    with h5py.File(tmp_path / "link.weights.h5", "w") as made:
        made["elsewhere"] = h5py.ExternalLink(str(file), "/")
    with pytest.raises(ModelFormatError, match="link"):
        exburn.saving.KerasFileEditor(tmp_path / "link.weights.h5")


def test_half_precision_stays(tmp_path):
    import ml_dtypes

    path = tmp_path / "half.weights.h5"
    layer = keras.layers.Dense(2, dtype="bfloat16")
    model = keras.Sequential([keras.Input((3,)), layer])
    model.save_weights(path)
    editor = exburn.saving.KerasFileEditor(path)
    editor.save(tmp_path / "again.weights.h5")
    twin = exburn.Sequential(
        [exburn.Input((3,)), exburn.layers.Dense(2, dtype="bfloat16")]
    )
    twin.load_weights(tmp_path / "again.weights.h5")
    model.load_weights(tmp_path / "again.weights.h5")
    kernel = np.asarray(editor.weights_dict["layers"]["dense"]["0"])
    assert kernel.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(np.asarray(twin.layers[0].kernel), kernel)
