"""Tests of ``exburn.layers.preprocessing.index_lookup``."""

import numpy as np
import pytest
from tests.layers.preprocessing.copies import again

from exburn import layers as L
from exburn.errors import ArgumentError, DataError, DTypeError, NotBuiltError


def test_learned_document_frequencies():
    layer = L.StringLookup(output_mode="tf_idf")
    layer.adapt([["a", "a", "b"], ["a", "c", "c"]])
    assert layer.get_vocabulary() == ["[UNK]", "a", "c", "b"]
    idf = np.log(1 + 2 / (1 + np.array([2, 1, 1])))
    y = layer([["a", "a", "q"], ["b", "c", "c"]])
    expected = [[idf.mean(), 2 * idf[0], 0, 0], [0, 0, 2 * idf[1], idf[2]]]
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    np.testing.assert_array_equal(again(layer)([["a", "b"]]), layer([["a", "b"]]))


def test_masks():
    layer = L.StringLookup(vocabulary=["a", "b"], mask_token="")
    assert layer.get_vocabulary() == ["", "[UNK]", "a", "b"]
    assert layer([["a", "", "z"]]).tolist() == [[2, 0, 1]]
    listed = L.StringLookup(vocabulary=["", "[UNK]", "a", "b"], mask_token="")
    assert listed.get_vocabulary() == layer.get_vocabulary()
    counts = L.StringLookup(vocabulary=["a", "b"], mask_token="", output_mode="count")
    assert counts([["a", "", "z"]]).tolist() == [[1, 1, 0]]
    strict = L.StringLookup(vocabulary=["a"], mask_token="", num_oov_indices=0)
    assert strict([["a", ""]]).tolist() == [[1, 0]]
    with pytest.raises(DataError, match="'z'"):
        strict([["a", "z"]])


def test_max_tokens_files_and_batches(tmp_path):
    layer = L.StringLookup(max_tokens=3)
    layer.adapt(iter([["b", "a"], ["a", "c", "c"], ["c"]]))
    assert layer.get_vocabulary() == ["[UNK]", "c", "a"]
    (tmp_path / "words.txt").write_text("red\ngreen\n")
    layer = L.StringLookup(vocabulary=str(tmp_path / "words.txt"))
    assert layer.get_vocabulary() == ["[UNK]", "red", "green"]
    assert again(layer)(["green"]).tolist() == [2]
    with pytest.raises(ArgumentError, match="path"):
        L.StringLookup.from_config({"vocabulary": str(tmp_path / "words.txt")})


def test_vocabulary_errors():
    for wrong in (
        {"vocabulary": ["a", "a"]},
        {"vocabulary": []},
        {"vocabulary": ["a", ""], "mask_token": ""},
        {"vocabulary": ["a", "[UNK]"], "invert": True},
        {"vocabulary": ["a", "b", "c"], "max_tokens": 3},
        {"vocabulary": ["a"], "output_mode": "tf_idf"},
        {"vocabulary": ["a"], "idf_weights": [1.0]},
        {"vocabulary": ["a"], "idf_weights": [1.0, 2.0], "output_mode": "tf_idf"},
        {"max_tokens": 1},
        {"pad_to_max_tokens": True},
        {"invert": True, "output_mode": "count"},
        {"output_mode": "words"},
        {"sparse": True},
        {"oov_method": "md5"},
    ):
        with pytest.raises(ArgumentError):
            L.StringLookup(**wrong)
    with pytest.raises(NotBuiltError, match="adapt"):
        L.StringLookup()(["a"])
    layer = L.StringLookup(vocabulary=["a"])
    with pytest.raises(DTypeError, match="3.5"):
        layer(["a", 3.5, None])
    with pytest.raises(ArgumentError, match="lengths"):
        layer([["a"], ["a", "b"]])


WORDS = ["a", "b", "c"]
LOOKUPS = {
    "given": {"vocabulary": WORDS},
    "with special ones": {"vocabulary": ["[UNK]", *WORDS]},
    "a mask, and two unknown": {
        "vocabulary": WORDS,
        "mask_token": "",
        "num_oov_indices": 2,
    },
    "no unknown": {"vocabulary": WORDS, "num_oov_indices": 0},
    "an unknown token among them": {"vocabulary": ["[UNK]", "[UNK]", "a"]},
    "weights": {
        "vocabulary": WORDS,
        "output_mode": "tf_idf",
        "idf_weights": [0.1, 0.2, 0.4],
    },
    "weights of special ones": {
        "vocabulary": ["[UNK]", *WORDS],
        "output_mode": "tf_idf",
        "idf_weights": [7.0, 0.1, 0.2, 0.4],
    },
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_a_configuration_makes_the_same_layer(name):
    layer = L.StringLookup(**LOOKUPS[name])
    made = L.StringLookup.from_config(layer.get_config())
    assert made.get_vocabulary() == layer.get_vocabulary()
    assert made.get_config() == layer.get_config()
    tokens = ["a", "c", "a"]
    np.testing.assert_array_equal(made(tokens), layer(tokens))


def test_a_configuration_tells_special_tokens_once():
    """Other ones are those of the layer that is made of it."""
    config = L.StringLookup(vocabulary=WORDS).get_config()
    assert config["vocabulary"] == WORDS
    changes = {"oov_token": "?", "mask_token": "", "num_oov_indices": 2}
    made = L.StringLookup.from_config(config | changes)
    assert made.get_vocabulary() == ["", "?", "?", *WORDS]
