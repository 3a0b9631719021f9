"""Hashes, vocabularies and texts. What Keras' documentation shows is expected here:
its own layers need TensorFlow."""

import json

import jax
import numpy as np
import pytest
from tests.layers.check_layer import check_layer

import exburn
from exburn import layers as L
from exburn.core import registry
from exburn.errors import (
    ArgumentError,
    DataError,
    DTypeError,
    GraphError,
    NotBuiltError,
    ShapeError,
)
from exburn.layers.preprocessing.fingerprint import fingerprint, siphash

LETTERS = [["A"], ["B"], ["C"], ["D"], ["E"]]


def again(layer):
    """The layer made from the JSON of its configuration."""
    copy = registry.deserialize(json.loads(json.dumps(registry.serialize(layer))))
    assert copy.get_config() == layer.get_config()
    return copy


# ------------------------------------------------------------------ hashes
def test_the_fingerprint_is_farmhash():
    known = {  # from Google's implementation, one for each branch
        1: 5689676191339864068,
        2: 3644435824453252268,
        4: 15236203898828484578,
        7: 3542725027790063974,
        12: 7047861948287330708,
        40: 12884060260176002545,
    }
    for times, value in known.items():
        assert fingerprint(b"exburn " * times) == value
    assert fingerprint(b"") == 0x9AE16A3B2F90404F


@pytest.mark.parametrize(
    ("options", "values", "expected"),
    [
        ({}, LETTERS, [1, 0, 1, 1, 2]),
        ({}, [0, 1, 2, 3, 4], [1, 0, 1, 0, 2]),
        ({"mask_value": ""}, [["A"], ["B"], [""], ["C"], ["D"]], [1, 1, 0, 2, 2]),
        ({"salt": [133, 137]}, LETTERS, [1, 2, 1, 0, 2]),
        ({"salt": 133}, LETTERS, [0, 0, 2, 1, 0]),
        ({"salt": [133, 137]}, [0, 1, 2, 3, 4], [1, 1, 2, 0, 1]),
        ({"output_mode": "count"}, [[0, 1, 2, 3, 4]], [2, 2, 1]),
        ({"output_mode": "multi_hot"}, [[0, 2]], [0, 1, 0]),
        ({"output_mode": "one_hot"}, [[0], [1]], [0, 1, 0, 1, 0, 0]),
    ],
)
def test_bins_are_those_of_keras(options, values, expected):
    layer = L.Hashing(num_bins=3, **options)
    y = layer(np.array(values))
    assert y.ravel().tolist() == expected
    assert y.dtype == ("float32" if "output_mode" in options else "int32")
    np.testing.assert_array_equal(again(layer)(values), y)


def test_crossed_bins_are_those_of_keras():
    features = (np.array(list("ABABA")), np.array([101, 101, 101, 102, 102]))
    layer = L.HashedCrossing(num_bins=5)
    assert layer(features).tolist() == [1, 4, 1, 1, 3]
    vectors = L.HashedCrossing(5, "one_hot")(features)
    assert vectors.argmax(-1).tolist() == [1, 4, 1, 1, 3] and vectors.sum() == 5
    column = [x[:, None] for x in features]
    assert layer(column).shape == (5, 1)
    assert again(layer)(features).tolist() == [1, 4, 1, 1, 3]
    with pytest.raises(ShapeError, match="two"):
        layer(features[0])
    with pytest.raises(ShapeError, match="shape"):
        layer((features[0], features[1][:3]))


def test_siphash_and_errors():
    assert siphash(b"", (0, 0)) == 0x1E924B9D737700D7
    for wrong in ({"num_bins": 0}, {"num_bins": 2, "salt": [1, 2, 3]}):
        with pytest.raises(ArgumentError):
            L.Hashing(**wrong)


# ------------------------------------------------------------------ vocabularies
def test_words_as_in_keras_documentation():
    layer = L.StringLookup(vocabulary=["a", "b", "c", "d"])
    data = [["a", "c", "d"], ["d", "z", "b"]]
    assert layer(data).tolist() == [[1, 3, 4], [4, 0, 2]]
    assert layer(np.array(data)).dtype == np.int32
    assert layer(np.array(data, "S")).tolist() == layer(data).tolist()
    layer = L.StringLookup()
    layer.adapt(data)
    assert layer.get_vocabulary() == ["[UNK]", "d", "z", "c", "b", "a"]
    assert layer.get_vocabulary(include_special_tokens=False) == list("dzcba")
    assert layer.vocabulary_size() == 6
    assert layer("d") == 1
    two = L.StringLookup(vocabulary=["a", "b", "c", "d"], num_oov_indices=2)
    y = two([["a", "c", "d"], ["m", "z", "b"]])
    assert y[0].tolist() == [2, 4, 5] and y[1, 2] == 3 and set(y[1, :2]) <= {0, 1}
    # Keras 3.15 on TensorFlow; the method is for integers, strings are hashed.
    words = ["q", "rr", "a", "zzz", "10", "x y"]
    for method in ("floormod", "farmhash"):
        options = {"num_oov_indices": 5, "oov_method": method}
        layer = L.StringLookup(vocabulary=["a", "b"], **options)
        assert layer(words).tolist() == [3, 4, 5, 0, 2, 4]
        assert layer.get_config()["oov_method"] == method
    salted = L.StringLookup(vocabulary=["a", "b"], num_oov_indices=5, salt=[3, 4])
    assert salted(words).tolist() == [3, 2, 5, 1, 1, 0]
    back = L.StringLookup(vocabulary=["a", "b", "c", "d"], invert=True)
    assert back([[1, 3, 4], [4, 0, 99]]).tolist() == [
        list("acd"),
        ["d", *["[UNK]"] * 2],
    ]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("one_hot", np.eye(5)[[1, 2, 3, 4, 0]]),
        ("multi_hot", [[0, 1, 0, 1, 1], [1, 0, 1, 0, 1]]),
        ("count", [[0, 1, 0, 1, 2], [2, 0, 1, 0, 1]]),
        ("tf_idf", [[0, 0.25, 0, 0.6, 0.8], [1.0, 0, 0.75, 0, 0.4]]),
    ],
)
def test_output_modes(mode, expected):
    rows = [["a", "c", "d", "d"], ["d", "z", "b", "z"]]
    rows = list("abcdz") if mode == "one_hot" else rows
    idf = [0.25, 0.75, 0.6, 0.4] if mode == "tf_idf" else None
    layer = L.StringLookup(vocabulary=list("abcd"), output_mode=mode, idf_weights=idf)
    y = layer(rows)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    np.testing.assert_array_equal(again(layer)(rows), y)
    padded = L.StringLookup(
        max_tokens=8,
        pad_to_max_tokens=True,
        vocabulary=list("abcd"),
        output_mode=mode,
        idf_weights=idf,
    )(rows)
    assert padded.shape == (*y.shape[:-1], 8)
    np.testing.assert_array_equal(padded[..., :5], y)
    assert not padded[..., 5:].any()


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


# ------------------------------------------------------------------ integers
NUMBERS = [12, 36, 1138, 42]


def test_integers_as_in_keras_documentation():
    layer = L.IntegerLookup(vocabulary=NUMBERS)
    data = np.array([[12, 1138, 42], [42, 1000, 36]])
    assert layer(data).tolist() == [[1, 3, 4], [4, 0, 2]]
    back = L.IntegerLookup(vocabulary=layer.get_vocabulary(), invert=True)
    assert back(layer(data)).tolist() == [[12, 1138, 42], [42, -1, 36]]
    layer = L.IntegerLookup()
    layer.adapt(data)
    assert layer.get_vocabulary() == [-1, 42, 1138, 1000, 36, 12]
    several = L.IntegerLookup(vocabulary=NUMBERS, num_oov_indices=2)
    assert several([[37, 1000, 12]]).tolist() == [[1, 0, 2]]
    wide = L.IntegerLookup(vocabulary=[2**40, 5])
    assert wide([2**40, 5, 7]).tolist() == [1, 2, 0]
    assert again(several)([[37]]).tolist() == [[1]]
    with pytest.raises(DTypeError):
        layer([0.5])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mask_token": 0, "num_oov_indices": 3},
        {"output_mode": "multi_hot", "mask_token": 7},
        {"output_mode": "count", "max_tokens": 9, "pad_to_max_tokens": True},
        {"output_mode": "one_hot"},
        {"output_mode": "tf_idf", "idf_weights": [0.1, 0.2, 0.3, 0.4]},
        {"invert": True},
    ],
    ids=str,
)
def test_integers_inside_a_model(options):
    layer = L.IntegerLookup(vocabulary=NUMBERS, **options)
    x = np.array([[12, 0, 42], [1138, 7, 36], [-5, 42, 42], [1, 2, 3]], "int32")
    inside = jax.jit(lambda x: layer(x))(x)
    outside = layer(x)
    np.testing.assert_allclose(inside, outside, rtol=1e-6)
    symbol = exburn.Input((3,), dtype="int32")
    assert layer(symbol).shape[1:] == outside.shape[1:]


def test_integer_contract():
    x = np.random.default_rng(0).integers(0, 50, (4, 3)).astype("int32")
    check_layer(
        lambda **o: L.IntegerLookup(vocabulary=NUMBERS, **o),
        x,
        free=(1,),
        half=False,
        differentiable=False,
    )


# ------------------------------------------------------------------ texts
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


@pytest.mark.parametrize(
    "layer",
    [
        L.TextVectorization(vocabulary=["a"]),
        L.StringLookup(vocabulary=["a"]),
        L.Hashing(num_bins=3),
        L.HashedCrossing(num_bins=3),
    ],
    ids=lambda layer: layer.name,
)
def test_a_program_cannot_call_them(layer):
    with pytest.raises(GraphError, match="(?s)host.*front"):
        jax.jit(layer)(np.zeros(3))


KERAS_CONFIGS = [  # of Keras 3.15 on TensorFlow, without what all layers have
    ("StringLookup", {
        "invert": False, "max_tokens": None, "num_oov_indices": 5, "oov_token": "[UNK]",
        "mask_token": None, "output_mode": "int", "sparse": False, "salt": None,
        "pad_to_max_tokens": False, "idf_weights": None, "vocabulary": ["a", "b"],
        "vocabulary_size": 7, "oov_method": "floormod", "encoding": "utf-8"}),
    ("IntegerLookup", {
        "invert": False, "max_tokens": None, "num_oov_indices": 2, "oov_token": -1,
        "mask_token": None, "output_mode": "int", "sparse": False, "salt": [7, 7],
        "pad_to_max_tokens": False, "vocabulary_dtype": "int64", "idf_weights": None,
        "vocabulary": [1, 2], "vocabulary_size": 4, "oov_method": "farmhash"}),
    ("TextVectorization", {
        "max_tokens": None, "standardize": "lower_and_strip_punctuation",
        "split": "whitespace", "ngrams": [1, 2], "output_mode": "int",
        "output_sequence_length": None, "pad_to_max_tokens": False, "sparse": False,
        "ragged": False, "vocabulary": None, "idf_weights": None, "encoding": "utf-8",
        "vocabulary_size": 2}),
    ("Discretization", {
        "bin_boundaries": [2.0, 5.0], "num_bins": 3, "epsilon": 0.01,
        "output_mode": "int", "sparse": False, "name": "d", "dtype": "float32"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "config"), KERAS_CONFIGS)
def test_configurations_of_keras(name, config):
    layer = getattr(L, name).from_config(config)
    again = getattr(L, name).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
