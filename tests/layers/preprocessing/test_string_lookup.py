"""Tests of ``exburn.layers.preprocessing.string_lookup``."""

import numpy as np

from exburn import layers as L

KERAS_CONFIGS = [
    # of Keras 3.15 on TensorFlow, without what all layers have
    (
        "StringLookup",
        {
            "invert": False,
            "max_tokens": None,
            "num_oov_indices": 5,
            "oov_token": "[UNK]",
            "mask_token": None,
            "output_mode": "int",
            "sparse": False,
            "salt": None,
            "pad_to_max_tokens": False,
            "idf_weights": None,
            "vocabulary": ["a", "b"],
            "vocabulary_size": 7,
            "oov_method": "floormod",
            "encoding": "utf-8",
        },
    ),
]


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
