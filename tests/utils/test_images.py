"""Tests of ``exburn.utils.images``."""

import io
import struct
import sys
import zlib

import numpy as np
import pytest
from PIL import Image
from tests import limits
from tests.golden import keras

from exburn import errors, utils

DEEP = (np.arange(20, dtype=np.uint16) * 3000).reshape(4, 5)  # to 57,000


def PNG():
    file = io.BytesIO()
    utils.save_img(file, np.ones((4, 4, 3)), file_format="png")
    return file


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


def test_a_jpeg_has_no_transparency(tmp_path):
    with pytest.warns(UserWarning, match="no transparency"):
        utils.save_img(tmp_path / "x.jpg", np.ones((4, 4, 4)))
    with Image.open(tmp_path / "x.jpg") as image:
        assert image.mode == "RGB"


REFUSALS = [
    (lambda: utils.array_to_img(np.ones((4, 4, 2))), errors.ExBurnError),
    (lambda: utils.img_to_array(np.ones(4)), errors.ExBurnError),
    (lambda: utils.load_img(PNG(), color_mode="hsv"), errors.ExBurnError),
    (
        lambda: utils.load_img(PNG(), target_size=(2, 2), interpolation="cubic"),
        errors.ExBurnError,
    ),
]


def test_without_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(errors.MissingDependencyError, match="pip install pillow"):
        utils.array_to_img(np.ones((2, 2, 3)))


@pytest.mark.parametrize("size", [(2**31 - 1, 2**31 - 1), (20_000, 20_000)])
def test_more_pixels_than_a_file_is_trusted_with(size, tmp_path):
    """A file of a hundred bytes, whose header alone is read."""

    def chunk(kind, data):
        code = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", code)

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", *size, 8, 2, 0, 0, 0))
    path = tmp_path / "large.png"
    data = chunk(b"IDAT", zlib.compress(bytes(99)))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + data)
    with pytest.raises(errors.FileFormatError, match="more pixels"):
        limits.bounded(lambda: utils.load_img(path))
