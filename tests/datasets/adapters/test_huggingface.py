"""Tests of ``exburn.datasets.adapters.huggingface``."""

import sys
from pathlib import Path

import numpy as np
import pytest

from exburn.data import ArrayDataset, StreamDataset, as_dataset
from exburn.errors import ArgumentError, DTypeError, UnknownNameError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def hugging_face():
    """Their package, although this folder's root may hold one of the same name."""
    kept = sys.path[:]
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != ROOT]
    try:
        return pytest.importorskip("datasets")
    finally:
        sys.path[:] = kept


@pytest.fixture
def reviews(hugging_face):
    return hugging_face.Dataset.from_dict(
        {
            "ids": [[1, 2], [3, 4], [5, 6]],
            "score": [0.5, 1.5, 2.5],
            "label": [0, 1, 1],
            "text": ["a", "b", "c"],
        }
    )


def test_hugging_face_by_column(reviews):
    from exburn.datasets import from_huggingface

    data = from_huggingface(reviews, "ids", "label", sample_weight="score")
    assert isinstance(data, ArrayDataset)
    assert data.tree[0].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert data.tree[1].tolist() == [0, 1, 1] and data.tree[2].dtype == np.float32
    several = from_huggingface(reviews, ["ids", "score"], "label")
    assert sorted(several.tree[0]) == ["ids", "score"]
    assert from_huggingface(reviews, "ids").tree[1] is None


def test_hugging_face_with_a_format(reviews):
    chosen = reviews.select_columns(["ids", "score"])
    x = as_dataset(chosen.with_format("numpy")).tree[0]
    assert x["ids"].dtype == np.int32 and x["score"].dtype == np.float32
    with pytest.raises(DTypeError, match=r"with_format\('numpy'\)"):
        as_dataset(chosen)
    with pytest.raises(DTypeError, match="strings"):
        as_dataset(reviews.with_format("numpy"))


def test_a_hugging_face_column_is_an_array(reviews):
    data = as_dataset(reviews["ids"], reviews["label"], reviews["score"])
    assert data.tree[0].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert data.tree[1].tolist() == [0, 1, 1] and data.tree[2].dtype == np.float32
    formatted = reviews.select_columns(["ids"]).with_format("numpy")
    assert as_dataset({"a": formatted["ids"]}).tree[0]["a"].shape == (3, 2)
    with pytest.raises(DTypeError, match="strings"):
        as_dataset(reviews["text"])
    ragged = type(reviews).from_dict({"x": [[1], [2, 3]]})
    with pytest.raises(DTypeError, match="ragged"):
        as_dataset(ragged["x"])


def test_hugging_face_streams(reviews):
    from exburn.datasets import from_huggingface

    stream = from_huggingface(
        reviews.to_iterable_dataset(), "ids", "label", batch_size=2
    )
    assert isinstance(stream, StreamDataset) and stream.batch_size == 2
    for epoch in range(2):
        batches = list(stream.iterate(epoch))
        assert [x.shape for x, _, _ in batches] == [(2, 2), (1, 2)]
    chosen = reviews.select_columns(["ids"]).to_iterable_dataset()
    ((x, y, _),) = as_dataset(chosen.with_format("numpy")).iterate()
    assert x["ids"].shape == (3, 2) and y is None


def test_hugging_face_errors(hugging_face, reviews):
    from exburn.datasets import from_huggingface

    with pytest.raises(UnknownNameError, match="Did you mean 'label'"):
        from_huggingface(reviews, "ids", "lable")
    with pytest.raises(DTypeError, match=r"ds\['train'\]"):
        from_huggingface(hugging_face.DatasetDict(train=reviews), "ids")
    with pytest.raises(ArgumentError, match="batch_size"):
        from_huggingface(reviews, "ids", batch_size=0)
    with pytest.raises(DTypeError, match="strings"):
        from_huggingface(reviews, "text")
