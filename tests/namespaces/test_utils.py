"""``utils``: arrays, series, folders, images, registered names, pictures of models."""

import io
import logging
import sys
import types
import wave
from pathlib import Path

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from PIL import Image

import exburn
from exburn import config, errors, utils
from exburn.layer import Layer
from exburn.layers import Dense
from exburn.utils import drawing

# Names of keras.utils that ExBurn leaves out, and why.
LEFT_OUT = {
    "Config": "a dict with attributes; types.SimpleNamespace does it",
    "FeatureSpace": "a layer catalogue of its own over the preprocessing layers",
    "bounding_boxes": "object detection is not part of this catalogue",
    "legacy": "reads configurations of Keras 2",
}


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


# ---------------------------------------------------------------------- streams
def test_time_series_windows():
    data, targets = np.arange(20.0), np.arange(20) * 10
    stream = utils.timeseries_dataset_from_array(
        data, targets, 4, sequence_stride=3, sampling_rate=2, batch_size=2
    )
    batches = list(stream)
    assert len(batches) == len(stream) == 3
    x = np.concatenate([x for x, _ in batches])
    y = np.concatenate([y for _, y in batches])
    assert x.tolist() == [[s, s + 2, s + 4, s + 6] for s in (0, 3, 6, 9, 12)]
    assert y.tolist() == [0, 30, 60, 90, 120]
    part = utils.timeseries_dataset_from_array(
        data, None, 2, start_index=5, end_index=8
    )
    assert [w.tolist() for w in part] == [[[5, 6], [6, 7]]]
    one = next(
        iter(utils.timeseries_dataset_from_array(data, None, 2, batch_size=None))
    )
    assert one.tolist() == [0, 1]


def test_time_series_shuffle_every_epoch_anew_and_alike_for_a_seed():
    def windows(seed):
        return utils.timeseries_dataset_from_array(
            np.arange(50), None, 1, shuffle=True, seed=seed
        )

    stream = windows(1)
    first, second = (next(iter(stream)).ravel().tolist() for _ in range(2))
    assert first != second and sorted(first) == sorted(second) == list(range(50))
    assert next(iter(windows(1))).ravel().tolist() == first


def test_fit_takes_a_stream():
    series = np.sin(np.arange(80) / 5).astype("float32")[:, None]
    stream = utils.timeseries_dataset_from_array(series, series[4:], 4, batch_size=16)
    model = exburn.Sequential([exburn.Input((4, 1)), exburn.layers.Flatten(), Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(stream, epochs=3, verbose=0).history["loss"]
    assert history[-1] < history[0]
    with pytest.raises(errors.ArgumentError, match="batch"):
        model.fit(stream.unbatch(), verbose=0)


def test_stream_methods():
    stream = utils.Stream(lambda epoch: iter([(i, -i) for i in range(7)]), 7)
    pairs = stream.map(lambda a, b: (a * 2, b)).skip(1).take(4)
    assert (list(pairs), len(pairs)) == ([(2, -1), (4, -2), (6, -3), (8, -4)], 4)
    batches = stream.batch(3)
    assert [x.tolist() for x, _ in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    assert (len(batches), len(stream.batch(3, drop_remainder=True))) == (3, 2)
    assert [int(x) for x, _ in batches.unbatch()] == list(range(7))
    mixed = stream.shuffle(4, seed=1)
    first, second = list(mixed), list(mixed)
    assert sorted(first) == sorted(second) == sorted(stream) and first != second
    assert stream.prefetch(2) is stream and stream.cardinality() == 7
    made = []
    cached = utils.Stream(lambda epoch: (made.append(i) or i for i in range(3))).cache()
    assert list(cached) == list(cached) == made == [0, 1, 2]


def test_set_random_seed_decides_where_no_seed_is_given():
    def order():
        exburn.set_random_seed(3)
        data = utils.timeseries_dataset_from_array(np.arange(30), None, 1, shuffle=True)
        left, _ = utils.split_dataset(np.arange(9), left_size=4, shuffle=True)
        return next(iter(data)).ravel().tolist(), [int(v) for v in left]

    assert order() == order()


def test_split_dataset():
    x, y = np.arange(10), np.arange(10) * 2
    left, right = utils.split_dataset((x, y), left_size=0.7)
    assert (len(left), len(right)) == (7, 3)
    assert [int(b) for _, b in right] == [14, 16, 18]
    left, right = utils.split_dataset(x, right_size=4, shuffle=True, seed=3)
    assert sorted(int(v) for part in (left, right) for v in part) == list(range(10))
    batches = utils.Stream(lambda e: iter(np.split(x, 5)), 5, batch_size=2)
    left, _ = utils.split_dataset(batches, left_size=3)
    assert [int(v) for v in left] == [0, 1, 2]


# ---------------------------------------------------------------------- folders
@pytest.fixture
def folder(tmp_path):
    """Ten images, texts and sounds in each of two classes."""
    rng = np.random.default_rng(0)
    for number, name in enumerate(("cat", "dog")):
        (tmp_path / name).mkdir()
        for i in range(10):
            stem = tmp_path / name / f"{i}"
            pixels = rng.integers(0, 255, (6, 8, 3)).astype("uint8")
            Image.fromarray(pixels).save(f"{stem}.png")
            Path(f"{stem}.txt").write_text(f"{name} {i} é", encoding="utf-8")
            with wave.open(f"{stem}.wav", "wb") as file:
                file.setparams((1, 2, 8000, 0, "NONE", ""))
                values = np.full(4 + i, 16384 * (1 - 2 * number), "<i2")
                file.writeframes(values.tobytes())
    return tmp_path


def test_images_of_a_folder(folder, capsys):
    data = utils.image_dataset_from_directory(
        folder, batch_size=8, image_size=(6, 8), shuffle=False
    )
    assert "Found 20 files belonging to 2 classes." in capsys.readouterr().out
    batches = list(data)
    assert [len(x) for x, _ in batches] == [8, 8, 4]
    assert data.class_names == ["cat", "dog"] and len(data.file_paths) == 20
    x = np.concatenate([x for x, _ in batches])
    assert x.shape == (20, 6, 8, 3) and x.dtype == "float32"
    stored = np.asarray(Image.open(folder / "cat" / "3.png"))
    np.testing.assert_array_equal(x[3], stored)
    assert np.concatenate([y for _, y in batches]).tolist() == [0] * 10 + [1] * 10


def test_a_split_is_that_of_keras_and_does_not_overlap(folder):
    parts = utils.image_dataset_from_directory(
        folder, seed=7, validation_split=0.3, subset="both", verbose=False
    )
    train, held = (set(part.file_paths) for part in parts)
    assert (len(train), len(held)) == (14, 6) and not train & held
    from keras.src.utils import dataset_utils as peer

    paths, labels, _ = peer.index_directory(
        str(folder), "inferred", (".png",), seed=7, verbose=False
    )
    assert parts[0].file_paths == paths[:14] and parts[1].file_paths == paths[14:]
    assert all(
        Path(path).parent.name == ("cat", "dog")[label]
        for path, label in zip(paths, labels, strict=True)
    )
    labelled = [int(v) for _, y in parts[1].map(lambda x, y: (x, y)) for v in y]
    assert sorted(labelled) == sorted(labels[14:])


@pytest.mark.parametrize(
    ("mode", "shape"), [("binary", (5, 1)), ("categorical", (5, 2)), ("int", (5,))]
)
def test_label_modes(folder, mode, shape):
    data = utils.text_dataset_from_directory(
        folder, label_mode=mode, batch_size=5, seed=0, verbose=False
    )
    for x, y in data:
        assert y.shape == shape
        number = y.argmax(-1) if mode == "categorical" else y.ravel()
        names = [("cat", "dog")[int(n)] for n in number]
        assert [text.split()[0] for text in x] == names


def test_texts_and_labels_given_or_absent(folder):
    data = utils.text_dataset_from_directory(
        folder, None, batch_size=None, max_length=3, shuffle=False, verbose=False
    )
    assert str(next(iter(data))) == "cat" and data.class_names is None
    given = utils.text_dataset_from_directory(
        folder, list(range(20)), batch_size=20, shuffle=False, verbose=False
    )
    assert next(iter(given))[1].tolist() == list(range(20))


def test_sounds(folder):
    data = utils.audio_dataset_from_directory(
        folder, batch_size=20, shuffle=False, sampling_rate=8000, verbose=False
    )
    x, y = next(iter(data))
    assert x.shape == (20, 13, 1)
    assert x[0, :5, 0].tolist() == [0.5, 0.5, 0.5, 0.5, 0.0]
    assert x[19, 0, 0] == -0.5 and y.tolist() == [0] * 10 + [1] * 10
    with pytest.raises(errors.FileFormatError, match="rate"):
        wrong = {"sampling_rate": 16000, "verbose": False}
        next(iter(utils.audio_dataset_from_directory(folder, **wrong)))


@pytest.mark.parametrize(
    "options",
    [
        {"validation_split": 0.2},
        {"validation_split": 0.2, "subset": "training"},
        {"validation_split": 1.5, "subset": "training", "seed": 1},
        {"subset": "training"},
        {"label_mode": "one_hot"},
        {"labels": "guessed"},
        {"class_names": ["cat", "cow"]},
        {"labels": None, "class_names": ["cat"]},
        {"labels": [1, 2]},
        {"crop_to_aspect_ratio": True, "pad_to_aspect_ratio": True},
    ],
)
def test_folders_refuse(folder, options):
    with pytest.raises(errors.ExBurnError):
        utils.image_dataset_from_directory(folder, verbose=False, **options)


def test_folders_that_are_absent_or_empty(tmp_path):
    for where in (tmp_path / "absent", tmp_path):
        with pytest.raises(errors.DataError):
            utils.text_dataset_from_directory(where, verbose=False)


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


@pytest.mark.parametrize(
    "call",
    [
        lambda: utils.array_to_img(np.ones((4, 4, 2))),
        lambda: utils.img_to_array(np.ones(4)),
        lambda: utils.save_img("x.jpg", np.ones((4, 4, 4))),
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
    text = capsys.readouterr().out
    assert text.startswith("4/4") and "loss: 2.5000" in text and "rate: 3.0000" in text
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


# ---------------------------------------------------------------------- pictures
def model():
    x = exburn.Input((4,), name="x")
    inner_input = exburn.Input((3,))
    inner = exburn.Model(inner_input, Dense(3, "tanh")(inner_input), name="inner")
    y = inner(Dense(3, name="first")(x))
    return exburn.Model(x, exburn.ops.concatenate([y, x * 2], axis=-1))


def test_the_source_of_a_picture(tmp_path):
    path = tmp_path / "model.dot"
    utils.plot_model(model(), path, show_shapes=True, show_layer_names=True)
    text = path.read_text()
    assert text.count("->") == 5
    assert "<b>Dense</b>" in text and "first" in text and "(None, 3)" in text
    assert "cluster" not in text
    full = {"show_layer_activations": True, "show_dtype": True, "show_trainable": True}
    utils.plot_model(model(), path, expand_nested=True, **full)
    text = path.read_text()
    assert text.count("subgraph cluster_") == 1 and text.count("->") == 5
    assert all(word in text for word in ("tanh", "float32", "Trainable: <b>True"))


def test_every_arrow_joins_boxes_that_exist(tmp_path):
    path = tmp_path / "model.dot"
    utils.plot_model(model(), path, expand_nested=True)
    lines = [line.strip(" ;") for line in path.read_text().splitlines()]
    boxes = {line.split()[0] for line in lines if "[label=" in line}
    arrows = [line.split(" -> ") for line in lines if " -> " in line]
    assert arrows and {end for arrow in arrows for end in arrow} <= boxes


def test_arrows_reach_the_right_box_of_models_with_several_inputs(tmp_path):
    p, q = exburn.Input((3,), name="p"), exburn.Input((3,), name="q")
    inner = exburn.Model([p, q], [Dense(3, name="left")(p), Dense(3, name="right")(q)])
    x = exburn.Input((3,), name="x")
    left, right = inner([x, x])
    path = tmp_path / "model.dot"
    outer = exburn.Model(x, [exburn.ops.tanh(right), exburn.ops.exp(left)])
    utils.plot_model(outer, path, expand_nested=True, show_layer_names=True)
    text = path.read_text()
    boxes = {}
    for line in text.splitlines():
        for name in ("left", "right", "tanh", "exp"):
            if "[label=<" in line and f"<td>{name} " in line:
                boxes[name] = line.split()[0]
    assert f"{boxes['right']} -> {boxes['tanh']};" in text
    assert f"{boxes['left']} -> {boxes['exp']};" in text


def test_pictures_without_graphviz(tmp_path, monkeypatch):
    monkeypatch.setattr(drawing.shutil, "which", lambda name: None)
    monkeypatch.setitem(sys.modules, "pydot", None)
    with pytest.raises(errors.MissingDependencyError, match="graphviz"):
        utils.plot_model(model(), tmp_path / "model.png")
    with pytest.raises(errors.MissingDependencyError, match="pip install pydot"):
        utils.model_to_dot(model())
    with pytest.raises(errors.UnknownNameError):
        utils.plot_model(model(), tmp_path / "model.dot", rankdir="UP")

    class Own(exburn.Model):
        def call(self, x):
            return x

    with pytest.raises(errors.NotBuiltError):
        utils.plot_model(Own(), tmp_path / "model.dot")


def test_pydot_reads_the_source(monkeypatch):
    fake = types.ModuleType("pydot")
    fake.graph_from_dot_data = lambda text: [text]
    monkeypatch.setitem(sys.modules, "pydot", fake)
    assert utils.model_to_dot(model()).startswith("digraph")


def test_graphviz_is_run_and_its_complaint_is_shown(tmp_path, monkeypatch):
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\ncat > "$3"\n')
    program.chmod(0o755)
    monkeypatch.setattr(drawing.shutil, "which", lambda name: str(program))
    utils.plot_model(model(), tmp_path / "model.svg")
    assert (tmp_path / "model.svg").read_text().startswith("digraph")
    program.write_text("#!/bin/sh\ncat >/dev/null\necho bad font >&2\nexit 1\n")
    with pytest.raises(errors.ExBurnError, match="bad font"):
        utils.plot_model(model(), tmp_path / "model.svg")
