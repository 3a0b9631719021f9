"""Images and texts of one's own, one folder a class."""

import os

import numpy as np
import pytest
from PIL import Image

from exburn import datasets
from exburn.errors import ArgumentError, DataError, MissingFileError


@pytest.fixture
def images(tmp_path):
    rng = np.random.default_rng(0)
    for number, name in enumerate(("cat", "dog")):
        (tmp_path / name / "more").mkdir(parents=True)
        for i in range(6):
            folder = tmp_path / name / ("more" if i > 3 else "")
            pixels = rng.integers(0, 100, (6, 8, 3)) + 100 * number
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")
        (tmp_path / name / "notes.txt").write_text("no image")
    (tmp_path / ".hidden").mkdir()
    return tmp_path


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_images(images, channels):
    (x, y), (xt, yt), names = datasets.image_folder(
        images, image_size=(6, 8), channels=channels, test_split=0.25
    )
    assert names == ("cat", "dog")
    assert x.shape == (9, 6, 8, channels) and xt.shape == (3, 6, 8, channels)
    assert x.dtype == np.uint8 and y.dtype == np.int32
    means = np.concatenate([x, xt])[..., 0].mean((1, 2))
    np.testing.assert_array_equal(np.concatenate([y, yt]), means > 100)


def test_the_pixels_are_those_of_the_file(images):
    (x, _), _, _ = datasets.image_folder(images, image_size=(6, 8), test_split=0)
    wanted = np.asarray(Image.open(images / "cat" / "0.png"))
    assert any((row == wanted).all() for row in x)


def test_seeds(images):
    def load(seed):
        return datasets.image_folder(images, image_size=(3, 4), seed=seed)[0][0]

    np.testing.assert_array_equal(load(1), load(1))
    assert not np.array_equal(load(1), load(2))


def test_texts(tmp_path):
    for name, texts in {"neg": ["schlecht", "öde"], "pos": ["gut"]}.items():
        (tmp_path / name).mkdir()
        for i, text in enumerate(texts):
            (tmp_path / name / f"{i}.txt").write_text(text, "utf-8")
    (x, y), (xt, _), names = datasets.text_folder(tmp_path, test_split=0)
    assert len(xt) == 0 and names == ("neg", "pos")
    found = dict(zip(x.tolist(), y.tolist(), strict=True))
    assert found == {"schlecht": 0, "öde": 0, "gut": 1}
    (tmp_path / "neg" / "9.txt").write_bytes("öde".encode("latin-1"))
    with pytest.raises(DataError, match="encoding='latin-1'"):
        datasets.text_folder(tmp_path)
    latin = datasets.text_folder(tmp_path, encoding="latin-1", test_split=0)
    assert "öde" in latin[0][0].tolist()
    with pytest.raises(DataError, match="nonsense"):
        datasets.text_folder(tmp_path, encoding="nonsense")
    (tmp_path / "neg" / "9.txt").write_text("x" * 100_000)
    (texts, _), _, _ = datasets.text_folder(tmp_path, test_split=0)
    assert texts.nbytes < 1000  # and not the longest one's length for each


def test_only_files_are_read(tmp_path, images):
    (images / "cat" / "folder.png").mkdir()
    os.mkfifo(images / "cat" / "pipe.png")  # would never end
    assert len(datasets.image_folder(images, image_size=(2, 2))[0][0]) > 0
    (images / "cat" / "link.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(DataError, match=r"link\.png"):
        datasets.image_folder(images, image_size=(2, 2))


def test_errors(tmp_path, images):
    with pytest.raises(MissingFileError, match="there is no folder .*nowhere"):
        datasets.text_folder(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="One folder for each class"):
        datasets.image_folder(tmp_path / "empty")
    with pytest.raises(ArgumentError, match="channels"):
        datasets.image_folder(images, channels=2)
    for size in (8, (8,), (0, 8), (8.5, 8), ("a", 8)):
        with pytest.raises(ArgumentError, match="image_size"):
            datasets.image_folder(images, image_size=size)
    (images / "cat" / "broken.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"broken\.png is no image"):
        datasets.image_folder(images)
