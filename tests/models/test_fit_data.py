"""The data of a training: what fit, and whatever trains besides it, are given."""

import numpy as np
import pytest

import exburn
from exburn.models.fit_data import prepare_for_fit, read_fit_data
from exburn.training.requests import DataRequest

X, Y = np.ones((10, 3), np.float32), np.arange(10) % 2


@pytest.fixture
def model():
    model = exburn.Sequential([exburn.Input((3,)), exburn.layers.Dense(2)])
    model.compile("sgd", "cross_entropy")
    return model


def test_rows_are_split_weighted_and_counted(model):
    weights = {0: 1.0, 1: 3.0}
    request = DataRequest(
        x=X, y=Y, batch_size=3, validation_split=0.2, class_weight=weights
    )
    data = read_fit_data(model, request)
    assert (data.dataset.size, data.validation.size, data.known_steps) == (8, 2, 3)
    assert data.dataset.tree[2].tolist() == [1.0, 3.0] * 4
    assert data.validation.tree[2] is None
    assert prepare_for_fit(model, data).shape[1:] == (2,)
