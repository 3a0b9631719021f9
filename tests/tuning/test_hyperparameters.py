"""What a path of a sweep names, and where that is in a model."""

import numpy as np
import pytest
from tests.tuning.models import X, Y, make_model, read_data

import exburn
from exburn.errors import ArgumentError, UnknownNameError
from exburn.optimizers import SGD, schedules
from exburn.tuning.hyperparameters import find, is_array, places


@pytest.fixture(scope="module")
def model():
    made = make_model()
    read_data(made)
    return made


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("drop/rate", 0.3),
        ("beta_1", 0.9),
        ("optimizer/beta_1", 0.9),
        ("loss/label_smoothing", 0.0),
        ("clipnorm", None),
        ("loss_weights", 1.0),
        ("norm/momentum", 0.99),
        ("hidden/units", 6),
    ],
)
def test_a_path_names_an_attribute_of_what_has_it(model, path, value):
    assert find(model, path).slot(model).read() == value


def test_what_is_no_attribute_has_a_place_of_its_own(model):
    kinds = [find(model, p).kind for p in ("seed", "learning_rate", "batch_size")]
    assert kinds == ["seed", "rate", "batch_size"]
    assert find(model, "seed").slot(model) is None


def test_layers_in_layers_go_by_their_path_or_their_own_name():
    inner = exburn.Sequential([exburn.layers.Dropout(0.2, name="deep")], name="block")
    model = exburn.Sequential([exburn.Input((5,)), inner, exburn.layers.Dense(3)])
    model.compile("sgd", "cross_entropy")
    read_data(model)
    full = next(p.path for p in places(model) if p.path.endswith("deep/rate"))
    assert find(model, full).slot(model).read() == 0.2
    assert find(model, "deep/rate").slot(model).read() == 0.2


def test_an_unknown_path_is_told_with_the_nearest_ones(model):
    with pytest.raises(UnknownNameError, match="Did you mean 'learning_rate'"):
        find(model, "learning_rte")
    with pytest.raises(UnknownNameError, match="'drop/rate'"):
        find(model, "drp/rate")


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("drop/rate", 1.5, "rate"),
        ("beta_1", 1.0, "beta_1"),
        ("seed", -1, "seed"),
        ("seed", 2**32, "2\\*\\*32"),
        ("batch_size", 0, "batch_size"),
        ("learning_rate", -0.1, "learning"),
    ],
)
def test_values_that_can_never_work_are_refused(model, path, value, says):
    with pytest.raises(ArgumentError, match=says):
        find(model, path).check(model, value)


def test_the_rate_of_a_schedule_is_varied_by_its_options():
    model = make_model(optimizer=SGD(schedules.ExponentialDecay(0.1, 10, 0.9)))
    read_data(model)
    with pytest.raises(ArgumentError, match="that of a schedule"):
        find(model, "learning_rate").check(model, 0.1)
    assert find(model, "learning_rate/decay_rate").slot(model).read() == 0.9


def test_a_value_is_set_in_a_model_or_makes_another_one(model):
    find(model, "drop/rate").set(model, 0.4)
    assert model.get_layer("drop").rate == 0.4
    find(model, "loss_weights").set(model, 2.0)
    assert model.evaluate(X, Y, verbose=0)[0] > 0
    made = find(model, "hidden/units").put(model, 4)
    assert made.get_layer("hidden").units == 4 and made is not model
    assert model.get_layer("hidden").units == 6


def test_only_numbers_become_entries_of_an_array():
    assert is_array([1, 0.5, np.float32(2)])
    assert not is_array([1, "relu"]) and not is_array([True]) and not is_array([None])
