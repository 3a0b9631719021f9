"""Tests of ``exburn.utils.columns``."""

import numpy as np
import pytest
from tests.utils.spaces import KINDS, NUMBERS

import exburn
from exburn.errors import DataError, DTypeError, NotBuiltError
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


FRAMES = ("pandas", "polars", "pyarrow")


def frame_of(library, columns):
    package = pytest.importorskip(library)
    if library == "pandas":
        return package.DataFrame(columns, index=[7, 3, 9, 1])
    return (package.table if library == "pyarrow" else package.DataFrame)(columns)


TOWNS = {
    "id": ["x", "y", "z", "w"],
    "town": ["Delft", "Ghent", "Delft", "Oslo"],
    "age": [1, 2, 3, 4],
    "rooms": [2, 3, 2, 5],
}


@pytest.mark.parametrize("library", FRAMES)
def test_a_space_takes_frames(library):
    kinds = {
        "town": "string_categorical",
        "age": "float_normalized",
        "rooms": "integer_categorical",
    }
    plain = {key: np.array(TOWNS[key], object if key == "town" else None)
             for key in kinds}  # fmt: skip
    known, space, parts = (FeatureSpace(kinds) for _ in range(3))
    frame = frame_of(library, TOWNS)
    known.adapt(plain)
    space.adapt(frame)  # columns that are no feature are left out
    np.testing.assert_array_equal(space(frame), known(plain))
    parts.adapt([frame[:2], frame[2:]])
    np.testing.assert_array_equal(parts(frame), known(plain))
    columns = {key: frame[key] for key in kinds}
    np.testing.assert_array_equal(space(columns), known(plain))


@pytest.mark.parametrize("library", FRAMES)
def test_a_space_names_all_columns_at_fault(library):
    space = FeatureSpace({"town": "float", "age": "float", "rooms": "string_hashed"})
    frame = frame_of(library, TOWNS | {"age": [1, None, 3, 4]})
    with pytest.raises(DTypeError, match="(?s)3 columns.*'Delft' at row 0.*at row 1"):
        space.adapt(frame)
    with pytest.raises(DataError, match=r"the table lacks columns: 'town', 'rooms'"):
        space.adapt(frame_of(library, {"age": TOWNS["age"]}))
    town = FeatureSpace({"town": "string_categorical"})
    with pytest.raises(DataError, match=r"data\['town'\] has missing values at row 2"):
        town.adapt(frame_of(library, {"town": ["a", "b", None, "c"]}))
