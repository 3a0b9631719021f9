"""The data of a training: what fit, and whatever trains besides it, are given."""

import numpy as np
import pytest

import exburn
from exburn.errors import ArgumentError
from exburn.models.fit_data import check_step_counts, prepare_for_fit, read_fit_data

PLAIN = {
    "batch_size": None,
    "validation_split": 0.0,
    "validation_data": None,
    "shuffle": True,
    "class_weight": None,
    "steps_per_epoch": None,
    "validation_steps": None,
    "validation_batch_size": None,
}
X, Y = np.ones((10, 3), np.float32), np.arange(10) % 2


@pytest.fixture
def model():
    model = exburn.Sequential([exburn.Input((3,)), exburn.layers.Dense(2)])
    model.compile("sgd", "cross_entropy")
    return model


def test_rows_are_split_weighted_and_counted(model):
    options = PLAIN | {"validation_split": 0.2, "class_weight": {0: 1.0, 1: 3.0}}
    data = read_fit_data(model, X, Y, None, **options | {"batch_size": 3})
    assert (data.dataset.size, data.validation.size, data.known_steps) == (8, 2, 3)
    assert data.dataset.tree[2].tolist() == [1.0, 3.0] * 4
    assert data.validation.tree[2] is None
    assert prepare_for_fit(model, data).shape[1:] == (2,)


def test_errors_name_the_operation_that_was_called(model):
    with pytest.raises(ArgumentError, match="sweep: shuffle must be"):
        read_fit_data(model, X, Y, None, **PLAIN | {"shuffle": 3}, op="sweep")
    with pytest.raises(ArgumentError, match="sweep: validation_steps"):
        check_step_counts("sweep", None, 0, None)
    assert check_step_counts("sweep", 3, None, 4) == (3, None, 4)
