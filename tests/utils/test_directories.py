"""Tests of ``exburn.utils.directories``."""

import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import exburn
from exburn import errors, utils


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


DEEP = (np.arange(20, dtype=np.uint16) * 3000).reshape(4, 5)  # to 57,000


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
    for form, call in (("tf", lambda x, y: -x), ("grain", lambda e: -e[0])):
        same = utils.audio_dataset_from_directory(
            folder, batch_size=20, shuffle=False, format=form, verbose=False
        )
        np.testing.assert_array_equal(next(iter(same.map(call))), -x)
    with pytest.raises(errors.ArgumentError, match="format"):
        utils.audio_dataset_from_directory(folder, format="pandas", verbose=False)
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


def test_an_empty_folder(tmp_path):
    with pytest.raises(errors.DataError, match="holds no files .txt"):
        utils.text_dataset_from_directory(tmp_path, verbose=False)


READERS = [
    utils.image_dataset_from_directory,
    utils.text_dataset_from_directory,
    utils.audio_dataset_from_directory,
    exburn.datasets.image_folder,
    exburn.datasets.text_folder,
]


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_a_folder_that_is_absent(read, tmp_path, monkeypatch):
    (tmp_path / "data" / "train").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError) as caught:
        read("data/trian")
    assert str(caught.value).splitlines() == [
        f"{read.__name__}: there is no folder data/trian",
        f"  looked at: {tmp_path}/data/trian",
        f"  current folder: {tmp_path}",
        f"  folders in {tmp_path}/data: train",
        "  → Did you mean 'data/train'?",
    ]


def test_the_text_of_a_folder_of_images(folder):
    images = utils.image_dataset_from_directory(
        folder, image_size=(4, 5), batch_size=2, verbose=False
    )
    assert repr(images).endswith("(float32[None, 4, 5, 3], int32[None])>")
    assert repr(images).startswith("<Stream 'image dataset': ")
    assert " batches of 2 rows · " in repr(images)
    assert f"{len(images.file_paths)} files · 2 classes (cat, dog)" in repr(images)
    (x, y), form = next(iter(images)), images.form
    assert form[0].shape[1:] == x.shape[1:] and form[0].dtype == x.dtype
    assert form[1].shape[1:] == y.shape[1:] and form[1].dtype == y.dtype


@pytest.mark.parametrize("color_mode", ["rgb", "grayscale"])
def test_16_bit_images_of_a_folder(color_mode, tmp_path):
    (tmp_path / "cat").mkdir()
    Image.fromarray(DEEP).save(tmp_path / "cat" / "1.png")
    options = {"color_mode": color_mode, "image_size": (4, 5), "verbose": False}
    x, _ = next(iter(utils.image_dataset_from_directory(tmp_path, **options)))
    np.testing.assert_array_equal(x[0, ..., 0], DEEP >> 8)
