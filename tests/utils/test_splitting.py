"""Tests of ``exburn.utils.splitting``."""

import io

import numpy as np
import pytest

import exburn
from exburn import errors, utils


def PNG():
    file = io.BytesIO()
    utils.save_img(file, np.ones((4, 4, 3)), file_format="png")
    return file


def test_time_series_windows():
    data, targets = np.arange(20.0), np.arange(20) * 10
    stream = utils.timeseries_dataset_from_array(
        data, targets, 4, sequence_stride=3, sampling_rate=2, batch_size=2
    )
    batches = list(stream)
    assert len(batches) == len(stream) == 3
    x = np.concatenate([x for x, _ in batches])
    y = np.concatenate([y for _, y in batches])
    assert x.tolist() == [[s, s + 2, s + 4, s + 6] for s in (0, 3, 6, 9, 12)]
    assert y.tolist() == [0, 30, 60, 90, 120]
    part = utils.timeseries_dataset_from_array(
        data, None, 2, start_index=5, end_index=8
    )
    assert [w.tolist() for w in part] == [[[5, 6], [6, 7]]]
    one = next(
        iter(utils.timeseries_dataset_from_array(data, None, 2, batch_size=None))
    )
    assert one.tolist() == [0, 1]


def test_time_series_shuffle_every_epoch_anew_and_alike_for_a_seed():
    def windows(seed):
        return utils.timeseries_dataset_from_array(
            np.arange(50), None, 1, shuffle=True, seed=seed
        )

    stream = windows(1)
    first, second = (next(iter(stream)).ravel().tolist() for _ in range(2))
    assert first != second and sorted(first) == sorted(second) == list(range(50))
    assert next(iter(windows(1))).ravel().tolist() == first


def test_set_random_seed_decides_where_no_seed_is_given():
    def order():
        exburn.set_random_seed(3)
        data = utils.timeseries_dataset_from_array(np.arange(30), None, 1, shuffle=True)
        left, _ = utils.split_dataset(np.arange(9), left_size=4, shuffle=True)
        return next(iter(data)).ravel().tolist(), [int(v) for v in left]

    assert order() == order()


def test_split_dataset():
    x, y = np.arange(10), np.arange(10) * 2
    left, right = utils.split_dataset((x, y), left_size=0.7)
    assert (len(left), len(right)) == (7, 3)
    assert [int(b) for _, b in right] == [14, 16, 18]
    left, right = utils.split_dataset(x, right_size=4, shuffle=True, seed=3)
    assert sorted(int(v) for part in (left, right) for v in part) == list(range(10))
    batches = utils.Stream(lambda e: iter(np.split(x, 5)), 5, batch_size=2)
    left, _ = utils.split_dataset(batches, left_size=3)
    assert [int(v) for v in left] == [0, 1, 2]


REFUSALS = [
    (lambda: utils.split_dataset(np.arange(4)), errors.ExBurnError),
    (lambda: utils.split_dataset(np.arange(4), left_size=1.5), errors.ExBurnError),
    (
        lambda: utils.split_dataset(np.arange(4), left_size=3, right_size=2),
        errors.ExBurnError,
    ),
    (
        lambda: utils.split_dataset((np.arange(4), np.arange(3)), left_size=2),
        errors.ExBurnError,
    ),
    (
        lambda: utils.timeseries_dataset_from_array(np.arange(4), None, 9),
        errors.ExBurnError,
    ),
    (
        lambda: utils.timeseries_dataset_from_array(np.arange(4), None, 0),
        errors.ExBurnError,
    ),
    (
        lambda: utils.timeseries_dataset_from_array(np.arange(4), None, 2, end_index=9),
        errors.ExBurnError,
    ),
]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_split_frames_by_rows(library):
    package = pytest.importorskip(library)
    columns = {"a": [1.0, 2.0, 3.0], "b": [4, 5, 6]}
    if library == "pandas":
        frame = package.DataFrame(columns, index=[2, 0, 1])
    else:
        frame = (package.table if library == "pyarrow" else package.DataFrame)(columns)
    left, right = utils.split_dataset(frame, left_size=2)
    assert [row.tolist() for row in left] == [[1, 4], [2, 5]]
    assert [row.tolist() for row in right] == [[3, 6]]
    left, _ = utils.split_dataset({"a": frame["a"], "b": frame["b"]}, left_size=1)
    assert [{k: float(v) for k, v in row.items()} for row in left] == [{"a": 1, "b": 4}]
    left, _ = utils.split_dataset((frame, frame["a"]), left_size=1)
    assert [(x.tolist(), float(y)) for x, y in left] == [([1, 4], 1)]
