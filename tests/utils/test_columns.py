"""Tests of ``exburn.utils.columns``."""

import numpy as np
import pytest
from tests.utils.spaces import KINDS, NUMBERS

import exburn
from exburn.errors import DataError, NotBuiltError
from exburn.utils import FeatureSpace


def _sources():
    rows = [{k: v[i] for k, v in NUMBERS.items()} for i in range(4)]
    halves = [{k: v[i : i + 2] for k, v in NUMBERS.items()} for i in (0, 2)]
    labels = np.zeros((4, 1))
    return {
        "rows": exburn.utils.Stream(lambda epoch: iter(rows), 4),
        "batches": halves,
        "iterator": iter(halves),
        "pairs": [(half, labels[:2]) for half in halves],
        "lists": {k: v.tolist() for k, v in NUMBERS.items()},
        "more": NUMBERS | {"target": labels},
    }


@pytest.mark.parametrize("source", sorted(_sources()))
def test_what_adapt_reads(source):
    known = FeatureSpace(KINDS)
    known.adapt(NUMBERS)
    space = FeatureSpace(KINDS)
    space.adapt(_sources()[source])
    np.testing.assert_allclose(space(NUMBERS), known(NUMBERS), rtol=1e-6, atol=1e-7)


def test_bad_data():
    space = FeatureSpace({"a": "float", "b": "integer_categorical"})
    with pytest.raises(NotBuiltError, match="features: b"):
        space({"a": [1.0], "b": [1]})
    for data in ({}, [], {"a": [1.0]}, [np.ones(3)], [{"a": np.ones(2)}]):
        with pytest.raises(DataError):
            space.adapt(data)
    space.adapt({"a": [1.0], "b": [1]})
    for data in (
        np.ones(3),
        {"a": [1.0]},
        {"a": [1.0], "b": [1], "c": [1]},
        {"a": [1.0, 2.0], "b": [1]},
        {"a": 1.0, "b": [1, 2]},
        {"a": [[1.0], [2.0, 3.0]], "b": [1, 2]},
    ):
        with pytest.raises(DataError):
            space(data)
