"""Tests of ``exburn.layers.preprocessing.text_vectorization``."""

import numpy as np
import pytest
from tests.layers.preprocessing.copies import again

from exburn import layers as L
from exburn.errors import ArgumentError, DTypeError, NotBuiltError, ShapeError

KERAS_CONFIGS = [
    (
        "TextVectorization",
        {
            "max_tokens": None,
            "standardize": "lower_and_strip_punctuation",
            "split": "whitespace",
            "ngrams": [1, 2],
            "output_mode": "int",
            "output_sequence_length": None,
            "pad_to_max_tokens": False,
            "sparse": False,
            "ragged": False,
            "vocabulary": None,
            "idf_weights": None,
            "encoding": "utf-8",
            "vocabulary_size": 2,
        },
    ),
]


def test_texts_as_in_keras_documentation():
    layer = L.TextVectorization(max_tokens=5000, output_sequence_length=4)
    layer.adapt(["foo bar", "bar baz", "baz bada boom"])
    expected = [[2, 1, 4, 0], [1, 3, 0, 0]]
    vocabulary = ["", "[UNK]", "baz", "bar", "foo", "boom", "bada"]
    assert layer.get_vocabulary() == vocabulary
    assert layer([["baz qux foo"], ["qux bar"]]).tolist() == expected
    assert layer(np.array(["baz qux foo", "qux bar"])).tolist() == expected
    assert layer("baz qux foo").tolist() == expected[0]
    assert layer(["one two three four five baz"]).shape == (1, 4)
    assert again(layer)(["baz qux foo", "qux bar"]).tolist() == expected
    given = L.TextVectorization(vocabulary=["earth", "wind", "and", "fire"])
    assert given.get_vocabulary()[:3] == ["", "[UNK]", "earth"]
    assert given(["Wind, and... FIRE!", "earth"]).tolist() == [[3, 4, 5], [2, 0, 0]]
    assert given.vocabulary_size() == 6


def test_standardize_and_split():
    def words(**options):
        layer = L.TextVectorization(**options)
        layer.adapt(["Ab, ab"])
        return layer.get_vocabulary(include_special_tokens=False)

    assert words() == ["ab"]
    assert words(standardize="lower") == ["ab,", "ab"]
    assert words(standardize="strip_punctuation") == ["ab", "Ab"]
    assert words(standardize=None) == ["ab", "Ab,"]
    assert words(split=None) == ["ab ab"]
    assert words(split="character") == ["b", "a", " "]
    assert words(standardize=lambda x: np.char.replace(x, "Ab", "X")) == ["ab", "X,"]
    assert words(split=lambda x: [text.split("b") for text in x]) == ["a", " a"]


def test_ngrams():
    layer = L.TextVectorization(ngrams=2)
    layer.adapt(["foo bar baz"])
    assert set(layer.get_vocabulary(False)) == {
        "foo",
        "bar",
        "baz",
        "foo bar",
        "bar baz",
    }
    order = [layer.get_vocabulary()[i] for i in layer(["foo bar baz"])[0]]
    assert order == ["foo", "bar", "baz", "foo bar", "bar baz"]
    layer = L.TextVectorization(ngrams=(1, 3))
    layer.adapt(["foo bar baz"])
    assert set(layer.get_vocabulary(False)) == {"foo", "bar", "baz", "foo bar baz"}
    assert again(layer)(["foo bar baz"]).tolist() == layer(["foo bar baz"]).tolist()


@pytest.mark.parametrize("mode", ["multi_hot", "count", "tf_idf"])
def test_vectors_of_texts(mode):
    texts = ["a b b", "c q q", ""]
    layer = L.TextVectorization(output_mode=mode)
    layer.adapt(["a b b", "b c"])
    assert layer.get_vocabulary() == ["[UNK]", "b", "c", "a"]
    counts = np.array([[0, 2, 0, 1], [2, 0, 1, 0], [0, 0, 0, 0]], "float32")
    if mode == "multi_hot":
        counts = np.minimum(counts, 1)
    if mode == "tf_idf":
        idf = np.log(1 + 2 / (1 + np.array([2, 1, 1])))
        counts = counts * [idf.mean(), *idf]
    np.testing.assert_allclose(layer(texts), counts, rtol=1e-6)
    np.testing.assert_allclose(again(layer)(texts), counts, rtol=1e-6)


def test_ready_words_of_different_number():
    layer = L.TextVectorization(split=None, vocabulary=["a", "b"])
    assert layer([["a", "b"], ["b"]]).tolist() == [[2, 3], [3, 0]]


def test_text_errors():
    for wrong in (
        {"standardize": "upper"},
        {"split": "letters"},
        {"ngrams": "two"},
        {"output_mode": "count", "output_sequence_length": 3},
        {"output_sequence_length": 0},
        {"ragged": True},
        {"sparse": True},
    ):
        with pytest.raises(ArgumentError):
            L.TextVectorization(**wrong)
    layer = L.TextVectorization(vocabulary=["a"])
    with pytest.raises(ShapeError, match="batch"):
        layer([["a", "b"]])
    with pytest.raises(NotBuiltError, match="adapt"):
        L.TextVectorization()(["a"])
    with pytest.raises(DTypeError, match="strings"):
        layer([1, 2])
