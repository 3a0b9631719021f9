"""Texts of files: packed, and read as if they were an attack."""

import base64
import json
import os
import zlib

import pytest

import exburn
from exburn import layers
from exburn.errors import ModelFormatError
from exburn.saving.json_text import MAX_TEXT, pack_text, unpack_text


@pytest.mark.parametrize("text", ["", "{}", "é" * 1000, json.dumps({"a": "\ud800"})])
def test_a_packed_text_comes_back_and_is_plain_in_json(text):
    packed = pack_text(text)
    assert unpack_text(packed, "load", "m.exburn") == text
    assert json.dumps(packed) == f'"{packed}"'


@pytest.mark.parametrize(
    "packed",
    [
        "{}",
        pack_text("x" * 1000)[:-5],
        base64.b85encode(zlib.compress(b"{}") + b"more").decode(),
        base64.b85encode(zlib.compress(b"\xff")).decode(),
        pack_text("x" * (MAX_TEXT + 1)),
    ],
)
def test_what_is_no_packed_text_is_refused(packed):
    with pytest.raises(ModelFormatError, match="the text"):
        unpack_text(packed, "load", "m.exburn")


def test_the_file_of_a_small_model_is_mostly_its_weights(tmp_path):
    model = exburn.Sequential(
        [
            exburn.Input((28, 28, 1)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(64, "relu"),
            layers.Dense(15),
        ]
    )
    model.save(path := tmp_path / "m.exburn")
    assert 4 * model.count_params() > 0.8 * os.path.getsize(path)
    model.quantize("int8").save(path)
    assert os.path.getsize(path) < 7500
