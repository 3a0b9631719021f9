"""``utils``: time series, and folders of images, texts and sounds."""

import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import exburn
from exburn import errors, utils
from exburn.layers import Dense


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


def test_streams_are_repeated_filtered_and_joined():
    stream = utils.Stream(lambda epoch: iter([(i, epoch) for i in range(3)]), 3)
    twice = stream.repeat(2)
    assert [e for _, e in twice] == [0, 0, 0, 1, 1, 1] and len(twice) == 6
    assert [e for _, e in twice] == [2, 2, 2, 3, 3, 3]
    endless = stream.repeat()
    assert (endless.cardinality(), endless.batch(2).cardinality()) == (-1, -1)
    assert [int(a) for a, _ in endless.take(7)] == [0, 1, 2, 0, 1, 2, 0]
    with pytest.raises(TypeError, match="infinite"):
        len(endless)
    odd = stream.filter(lambda a, _: a % 2)
    assert [a for a, _ in odd.concatenate(stream)] == [1, 0, 1, 2]
    assert (odd.cardinality(), stream.concatenate(stream).cardinality()) == (-2, 6)
    model = exburn.Sequential([exburn.Input((4,)), Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((10, 4)), np.ones((10, 1))
    batches = utils.Stream(lambda epoch: iter([(x, y), (x, y)]), 2, batch_size=10)
    history = model.fit(batches.repeat(), steps_per_epoch=3, epochs=2, verbose=0)
    assert history.params["steps"] == 3 and len(history.history["loss"]) == 2
    with pytest.raises(errors.ArgumentError, match="steps_per_epoch"):
        model.fit(batches.repeat(), verbose=0)


@pytest.mark.parametrize("name", ["tf", "grain"])
def test_the_format_says_how_functions_are_called(name):
    x, y = np.arange(6.0), np.arange(6)
    stream = utils.timeseries_dataset_from_array(x, y, 2, batch_size=2, format=name)
    if name == "grain":
        stream = stream.filter(lambda e: e[1][0] > 0).map(lambda e: (-e[0], e[1]))
    else:
        stream = stream.filter(lambda x, y: y[0] > 0).map(lambda x, y: (-x, y))
    assert [x.tolist() for x, _ in stream] == [[[-2, -3], [-3, -4]], [[-4, -5]]]


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
