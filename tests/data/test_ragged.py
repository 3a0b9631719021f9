import numpy as np
import pytest

import exburn.datasets  # whose adapters know columns of Hugging Face's
from exburn.data import RaggedArray, RaggedDataset, ReadOptions, as_dataset
from exburn.errors import DataError, DTypeError, ShapeError

LISTS = [[1, 2], [3, 4, 5]]
ONE_INPUT = ReadOptions(ragged=True, row=())


def read(x, y=None, weight=None, options=ONE_INPUT):
    y = np.zeros(2) if y is None else y
    return as_dataset(x, y, weight, options=options)


class RaggedTensor:
    """What is read of TensorFlow's class of this name."""

    def __init__(self, values, splits):
        self.flat_values, self.row_splits = np.asarray(values), np.asarray(splits)
        self.nested_row_splits = (self.row_splits,)


def objects(rows):
    array = np.empty(len(rows), object)
    array[:] = rows
    return array


def column(library):
    if library == "pandas":
        return pytest.importorskip("pandas").Series(LISTS)
    if library == "pandas table":
        return pytest.importorskip("pandas").DataFrame({"a": LISTS})
    if library == "polars":
        return pytest.importorskip("polars").Series("a", LISTS)
    if library == "pyarrow":
        return pytest.importorskip("pyarrow").array(LISTS)
    assert exburn.datasets.adapters
    return pytest.importorskip("datasets").Dataset.from_dict({"a": LISTS})["a"]


@pytest.mark.parametrize(
    "rows",
    [
        LISTS,
        tuple(LISTS),
        [np.array(row) for row in LISTS],
        objects(LISTS),
        objects([np.array(row) for row in LISTS]),
        RaggedTensor([1, 2, 3, 4, 5], [0, 2, 5]),
    ],
    ids=["lists", "tuple", "arrays", "objects", "object arrays", "ragged tensor"],
)
def test_rows_of_unlike_lengths(rows):
    (x, _, _) = read(rows).tree
    assert [row.tolist() for row in x] == LISTS and x.dtype == np.int32


@pytest.mark.parametrize(
    "library", ["pandas", "pandas table", "polars", "pyarrow", "datasets"]
)
def test_columns_of_lists(library):
    assert [row.tolist() for row in read(column(library)).tree[0]] == LISTS


def test_series_with_features_and_inputs_by_name():
    series = [np.ones((2, 3)), np.zeros((4, 3))]
    x = {"series": series, "age": np.array([1.0, 2.0])}
    data = read(x)
    assert data.tree[0]["series"].shape == (2, 4, 3)
    batch = data.fill(np.array([1]), (5,)).tree[0]
    assert batch["series"].values.shape == (1, 5, 3) and batch["age"].tolist() == [2.0]


def test_targets_for_each_position_share_the_axis():
    data = read(LISTS, [[0, 1], [1, 1, 0]])
    x, y, _ = data.fill(np.arange(2), (4,)).tree
    assert len(data.axes) == 1
    assert y.tolist() == [[0, 1, 1, 1], [1, 1, 0, 0]]  # of values that occur
    assert x.mask().tolist() == [[True, True, False, False], [True, True, True, False]]


def test_targets_of_one_length_are_stacked():
    data = read(LISTS, [np.array([0.0, 1.0]), np.array([1.0, 0.0])])
    assert data.tree[1].shape == (2, 2)


def test_rows_of_one_length_are_an_array():
    assert read([np.arange(3), np.arange(3)]).tree[0].shape == (2, 3)
    two = ReadOptions(ragged=True)  # a model that may have two inputs
    assert isinstance(read([np.arange(2), np.arange(2)], options=two).tree[0], list)


def test_lists_of_several_inputs_and_outputs_are_no_rows():
    one, two = np.ones((8, 1)), np.ones((8, 2))
    unknown = ReadOptions(ragged=True)
    x, y, _ = read([one, [two, one]], [one, [two]], options=unknown).tree
    assert x[1][0].shape == y[1][0].shape == (8, 2)


def test_parts_of_ragged_arrays():
    rows = RaggedArray(np.arange(6), np.array([1, 2, 3]))
    assert [row.tolist() for row in rows[1:]] == [[1, 2], [3, 4, 5]]
    assert [row.tolist() for row in rows[np.array([2, 0])]] == [[3, 4, 5], [0]]
    part = RaggedDataset((rows, np.arange(3), None)).rows(1, 3)
    assert part.size == 2 and part.axes[0].tolist() == [2, 3]


REFUSALS = [
    (
        lambda: read([[1], []]),
        DataError,
        "x has a row without entries: row 1",
    ),
    (lambda: read([["a"], ["b", "c"]]), DTypeError, "row 0 holds"),
    (
        lambda: read([np.ones((2, 3)), np.ones((3, 4))]),
        ShapeError,
        "must have rows that differ in their length alone",
    ),
    (
        lambda: read(LISTS, [[0], [1, 1, 0]]),
        DataError,
        "first row that differs: 0: 1 in y, 2 in x",
    ),
    (
        lambda: read(np.ones((2, 3)), LISTS),
        DTypeError,
        "y must be numeric, but holds ragged rows",
    ),
    (
        lambda: as_dataset(
            LISTS,
            np.zeros(2),
            options=ReadOptions(ragged=True, inputs={"a": np.zeros((1, 2))}, row=(2,)),
        ),
        ShapeError,
        "first longer row: 1: 3 positions",
    ),
    (
        lambda: as_dataset(read(LISTS), op="sweep"),
        DataError,
        "sweep: rows of unlike lengths are taken by fit, evaluate and predict",
    ),
    (
        lambda: read(_nested()),
        ShapeError,
        "must be ragged along one axis, but is along 2",
    ),
]


def _nested():
    tensor = RaggedTensor([1, 2, 3], [0, 1, 2])
    tensor.nested_row_splits = (tensor.row_splits, tensor.row_splits)
    return tensor
