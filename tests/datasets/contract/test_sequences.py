"""Tests of ``exburn.datasets.contract.sequences``."""

import json

import numpy as np
import pytest
from tests.datasets.downloads import keras_loader, npz, publish, same

from exburn.datasets import imdb, reuters
from exburn.errors import ArgumentError, DataError, FileFormatError


def texts(rng, rows):
    x = np.empty(rows, object)
    for i in range(rows):
        x[i] = rng.integers(1, 50, rng.integers(1, 12)).tolist()
    return x


OPTIONS = [
    {"num_words": 30},
    {"num_words": 20, "skip_top": 5, "maxlen": 8, "seed": 3},
    {"num_words": 25, "oov_char": None, "start_char": None},
    {"num_words": 25, "start_char": None, "index_from": 0},
]


@pytest.mark.parametrize("module", [imdb, reuters])
def test_texts_are_as_in_keras(module, cache, server, monkeypatch, tmp_path):
    name = module.__name__.rsplit(".", 1)[-1]
    rng = np.random.default_rng(6)
    arrays = {"x": texts(rng, 30), "y": rng.integers(0, 2, 30)}
    if module is imdb:
        arrays = {
            "x_train": texts(rng, 30),
            "y_train": rng.integers(0, 2, 30),
            "x_test": texts(rng, 20),
            "y_test": rng.integers(0, 2, 20),
        }
    data = npz(**arrays)
    publish(server, monkeypatch, module, f"{name}.npz", data)
    theirs = keras_loader(name, data, monkeypatch, tmp_path)
    for options in OPTIONS:
        same(module.load_data(**options), theirs(**options))
    (x, _), (xt, _) = module.load_data()  # Keras drops the most frequent-last word here
    words = {w for text in [*x, *xt] for w in text}
    assert 2 not in words and max(words) == 52
    with pytest.raises(DataError, match="no text is shorter than maxlen=1"):
        module.load_data(maxlen=1)
    with pytest.raises(ArgumentError, match="num_words must be at least 1"):
        module.load_data(num_words=0)


@pytest.mark.parametrize("module", [imdb, reuters])
def test_word_index(module, cache, server, monkeypatch):
    name = module.__name__.rsplit(".", 1)[-1] + "_word_index.json"
    data = json.dumps({"the": 1, "über": 2}).encode()
    publish(server, monkeypatch, module, name, data, "INDEX_DIGEST")
    assert module.get_word_index() == {"the": 1, "über": 2}
    own = cache.parent / "own.json"
    own.write_text("{")
    with pytest.raises(FileFormatError, match="not JSON"):
        module.get_word_index(own)
