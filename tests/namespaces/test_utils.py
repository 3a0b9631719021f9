"""``utils``: arrays, images, progress, registered names."""

import io
import logging
import sys

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from PIL import Image

import exburn
from exburn import config, errors, utils
from exburn.layers import Dense
from exburn.module.layer import Layer

# Names of keras.utils that ExBurn leaves out, and why.
LEFT_OUT = {}


def test_every_name_of_keras_utils_is_here_or_left_out_for_a_reason():
    names = {n for n in dir(keras.utils) if not n.startswith("_")}
    assert {n for n in names if not hasattr(utils, n)} == set(LEFT_OUT)


# ---------------------------------------------------------------------- arrays
@pytest.mark.parametrize(
    ("labels", "classes"),
    [([0, 2, 1], None), ([0, 2, 1], 5), ([[1], [0]], None), ([[1, 0], [2, 1]], 3)],
)
def test_to_categorical(labels, classes):
    got = utils.to_categorical(labels, classes)
    np.testing.assert_array_equal(got, keras.utils.to_categorical(labels, classes))
    assert got.dtype == "float32"


def test_to_categorical_of_jax_arrays_and_of_wrong_labels():
    assert isinstance(utils.to_categorical(jnp.array([0, 1])), jax.Array)
    hot = jax.jit(lambda x: utils.to_categorical(x, 3))(jnp.array([2]))
    assert hot.tolist() == [[0, 0, 1]]
    for labels, classes in (([0, 3], 3), ([-1, 0], 2)):
        with pytest.raises(errors.DataError):
            utils.to_categorical(labels, classes)


@pytest.mark.parametrize("order", [1, 2])
def test_normalize(order):
    x = np.array([[3.0, 4.0], [0.0, 0.0]])
    got = utils.normalize(x, order=order)
    np.testing.assert_allclose(got, keras.utils.normalize(x, order=order))
    np.testing.assert_allclose(utils.normalize(jnp.asarray(x), order=order), got)


SEQUENCES = [[1], [2, 3], [4, 5, 6], []]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"maxlen": 2},
        {"maxlen": 2, "truncating": "post"},
        {"maxlen": 5, "padding": "post", "value": -1},
        {"padding": "post", "dtype": "float32", "value": 0.5},
    ],
)
def test_pad_sequences(options):
    got = utils.pad_sequences(SEQUENCES, **options)
    wanted = keras.utils.pad_sequences(SEQUENCES, **options)
    np.testing.assert_array_equal(got, wanted)
    assert got.dtype == wanted.dtype


def test_pad_sequences_of_vectors_and_words():
    vectors = [np.ones((2, 3)), np.ones((1, 3))]
    assert utils.pad_sequences(vectors, dtype="float32").shape == (2, 2, 3)
    words = utils.pad_sequences([["a"], ["b", "c"]], dtype=object, value="_")
    assert words.tolist() == [["_", "a"], ["b", "c"]]


def test_parts_of_a_batch():
    for data in (1, (1, 2), (1, 2, 3)):
        x, y, w = utils.unpack_x_y_sample_weight(data)
        assert utils.pack_x_y_sample_weight(x, y, w) == data


# ---------------------------------------------------------------------- images
def test_images_between_arrays_and_files(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype("float32")
    path = tmp_path / "x.png"
    utils.save_img(path, x, scale=False)
    np.testing.assert_array_equal(utils.img_to_array(utils.load_img(path)), x)
    small = utils.load_img(path, color_mode="grayscale", target_size=(3, 2))
    assert utils.img_to_array(small, "channels_first").shape == (1, 3, 2)
    theirs = keras.utils.load_img(path, target_size=(4, 4), interpolation="bilinear")
    ours = utils.load_img(path, target_size=(4, 4), interpolation="bilinear")
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    kept = utils.load_img(path, target_size=(4, 4), keep_aspect_ratio=True)
    wanted = Image.open(path).resize((4, 4), 0, (1, 0, 6, 5))
    np.testing.assert_array_equal(np.asarray(kept), np.asarray(wanted))
    stretched = np.asarray(utils.array_to_img(x / 1000))
    assert (stretched.min(), stretched.max()) == (0, 255)


DEEP = (np.arange(20, dtype=np.uint16) * 3000).reshape(4, 5)  # to 57,000


@pytest.mark.parametrize("color_mode", ["rgb", "rgba"])
def test_16_bits_become_8_in_colour(color_mode, tmp_path):
    Image.fromarray(DEEP).save(path := tmp_path / "x.png")
    x = utils.img_to_array(utils.load_img(path, color_mode))
    np.testing.assert_array_equal(x[..., 0], DEEP >> 8)  # as Pillow reads 16-bit RGB
    cut = keras.utils.img_to_array(keras.utils.load_img(path, color_mode=color_mode))
    assert set(np.unique(cut)) == {0, 255}  # what Keras makes of it


def test_grey_keeps_what_is_deeper_than_8_bits(tmp_path):
    for name, x in {
        "i16.png": DEEP,
        "i32.tif": DEEP.astype(np.int32) * 9,
        "f.tif": DEEP.astype(np.float32) / 1e5,
    }.items():
        Image.fromarray(x).save(path := tmp_path / name)
        kept = utils.img_to_array(utils.load_img(path, "grayscale"))
        np.testing.assert_array_equal(kept[..., 0], x)


def test_what_32_bits_lose_is_told(tmp_path):
    whole = np.arange(20, dtype=np.float32).reshape(4, 5)
    for name, x in {"i.tif": DEEP.astype(np.int32), "f.tif": whole / 20}.items():
        Image.fromarray(x).save(path := tmp_path / name)
        with pytest.warns(UserWarning, match=f"{name} holds values from 0"):
            utils.load_img(path)
    Image.fromarray(whole).save(path := tmp_path / "fits.tif")
    np.testing.assert_array_equal(
        utils.img_to_array(utils.load_img(path))[..., 1], whole
    )


@pytest.mark.parametrize("color_mode", ["rgb", "grayscale"])
def test_16_bit_images_of_a_folder(color_mode, tmp_path):
    (tmp_path / "cat").mkdir()
    Image.fromarray(DEEP).save(tmp_path / "cat" / "1.png")
    options = {"color_mode": color_mode, "image_size": (4, 5), "verbose": False}
    x, _ = next(iter(utils.image_dataset_from_directory(tmp_path, **options)))
    np.testing.assert_array_equal(x[0, ..., 0], DEEP >> 8)


def test_a_jpeg_has_no_transparency(tmp_path):
    with pytest.warns(UserWarning, match="no transparency"):
        utils.save_img(tmp_path / "x.jpg", np.ones((4, 4, 4)))
    with Image.open(tmp_path / "x.jpg") as image:
        assert image.mode == "RGB"


@pytest.mark.parametrize(
    "call",
    [
        lambda: utils.array_to_img(np.ones((4, 4, 2))),
        lambda: utils.img_to_array(np.ones(4)),
        lambda: utils.load_img(PNG(), color_mode="hsv"),
        lambda: utils.load_img(PNG(), target_size=(2, 2), interpolation="cubic"),
        lambda: utils.pad_sequences([[1]], padding="left"),
        lambda: utils.pad_sequences([1, 2]),
        lambda: utils.pad_sequences([["a"]], value="_"),
        lambda: utils.pad_sequences([np.ones((1, 2)), np.ones((1, 3))]),
        lambda: utils.unpack_x_y_sample_weight((1, 2, 3, 4)),
        lambda: utils.split_dataset(np.arange(4)),
        lambda: utils.split_dataset(np.arange(4), left_size=1.5),
        lambda: utils.split_dataset(np.arange(4), left_size=3, right_size=2),
        lambda: utils.split_dataset((np.arange(4), np.arange(3)), left_size=2),
        lambda: utils.timeseries_dataset_from_array(np.arange(4), None, 9),
        lambda: utils.timeseries_dataset_from_array(np.arange(4), None, 0),
        lambda: utils.timeseries_dataset_from_array(np.arange(4), None, 2, end_index=9),
    ],
)
def test_refusals(call):
    with pytest.raises(errors.ExBurnError):
        call()


def PNG():
    file = io.BytesIO()
    utils.save_img(file, np.ones((4, 4, 3)), file_format="png")
    return file


def test_without_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(errors.MissingDependencyError, match="pip install pillow"):
        utils.array_to_img(np.ones((2, 2, 3)))


# ---------------------------------------------------------------------- progress
def test_progbar_means_and_states(capsys):
    bar = utils.Progbar(4, verbose=2, stateful_metrics=["rate"])
    bar.update(1, [("loss", 4.0), ("rate", 1.0)])
    bar.add(3, [("loss", 2.0), ("rate", 3.0)])
    text = capsys.readouterr().out  # the last values stand, as in Keras
    assert text.startswith("4/4") and "loss: 2.0000" in text and "rate: 3.0000" in text
    utils.Progbar(None, verbose=1).update(5, finalize=True)
    assert "5/Unknown" in capsys.readouterr().out
    utils.Progbar(2, verbose=0).update(2)
    assert capsys.readouterr().out == ""


def test_progbar_into_the_log(capsys, caplog):
    config.disable_interactive_logging()
    try:
        with caplog.at_level(logging.INFO, "exburn"):
            bar = utils.Progbar(2)
            bar.update(1)
            bar.update(2)
    finally:
        config.enable_interactive_logging()
    assert len(caplog.messages) == 1 and caplog.messages[0].startswith("2/2")
    assert capsys.readouterr().out == ""


# ---------------------------------------------------------------------- names
def test_registered_names():
    @utils.register_keras_serializable("tests", "Scaled")
    class Scale(Layer):
        pass

    assert utils.get_registered_name(Scale) == "tests>Scaled"
    assert utils.get_registered_object("tests>Scaled") is Scale
    config_ = utils.serialize_keras_object(Dense(3, activation="relu"))
    again = utils.deserialize_keras_object(config_)
    assert (again.units, again.get_config()["activation"]) == (3, "relu")


def test_a_name_in_a_table_of_ones_own_makes_an_object_as_in_keras():
    import keras

    @utils.register_keras_serializable("tests")
    class Greedy:
        def __init__(self, width=2):
            self.width = width

        def get_config(self):
            return {"width": self.width}

        @classmethod
        def from_config(cls, config):
            return cls(**config)

    keras.utils.register_keras_serializable("tests")(Greedy)
    for library in (utils, keras.saving):
        make = library.deserialize_keras_object
        table = {"greedy": Greedy, "twice": lambda x: 2 * x}
        assert make("greedy", module_objects=table).width == 2
        described = {"class_name": "greedy", "config": {"width": 3}}
        assert make(described, module_objects=table).width == 3
        assert make("another", module_objects=table) == "another"
        assert make("greedy", {"greedy": 5}, module_objects=table) == 5
        assert make("tests>Greedy", module_objects=table) is Greedy
    twice = utils.deserialize_keras_object("twice", module_objects=table)
    assert twice(4) == 8


def test_custom_objects():
    def cube(x):
        return x**3

    with utils.custom_object_scope({"cube": cube}):
        assert utils.get_registered_object("cube") is cube
    assert utils.get_registered_object("cube") is None
    utils.get_custom_objects()["cube"] = cube
    try:
        assert utils.get_registered_object("cube") is cube
    finally:
        utils.get_custom_objects().clear()


def test_source_inputs():
    a, b = exburn.Input((3,), name="a"), exburn.Input((3,), name="b")
    hidden = Dense(2)(a)
    assert utils.get_source_inputs(hidden) == [a]
    both = exburn.ops.concatenate([hidden, b], axis=-1)
    assert {s.name for s in utils.get_source_inputs(both)} == {"a", "b"}
