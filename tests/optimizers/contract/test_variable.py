"""Tests of ``exburn.optimizers.contract.variable``."""

import pickle

import numpy as np
import pytest

import exburn
from exburn.errors import ShapeError
from exburn.optimizers.contract.variable import live_number


def trained():
    model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1, name="d")])
    optimizer = exburn.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)
    return optimizer


def test_variables_show_and_set_the_state():
    optimizer = trained()
    momenta = [v for v in optimizer.variables if v.shape == (2, 1)]
    assert len(momenta) == 1
    (momentum,) = momenta
    assert momentum.name == momentum.path.rpartition("/")[2]
    momentum.assign([[1.0], [2.0]])
    again = next(v for v in optimizer.variables if v.path == momentum.path)
    assert np.asarray(again.value).tolist() == [[1.0], [2.0]]
    assert again.identity == momentum.identity
    with pytest.raises(ShapeError):
        momentum.assign([1.0, 2.0, 3.0])


def test_a_number_sets_what_it_was_read_from():
    seen = []
    rate = live_number(0.25, seen.append)
    rate.assign(0.5)
    assert (rate, rate + 1, rate.value, seen) == (0.25, 1.25, 0.25, [0.5])
    assert rate.numpy().dtype == "float32"
    assert live_number(3, seen.append).numpy().dtype == "int32"
    assert type(pickle.loads(pickle.dumps(rate))) is float


def test_arrays_of_several_models_stay_arrays():
    rates = np.ones(3)
    assert live_number(rates, None) is rates
