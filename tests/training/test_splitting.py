"""Modules that are split anew, and the numbers that become arguments."""

import pytest

import exburn as keras
from exburn import layers
from exburn.training.splitting import Splitter
from exburn.training.state_holder import StateHolder


@pytest.fixture
def splitter():
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(3), layers.Dropout(0.5), layers.Dense(1)]
    )
    made = Splitter(StateHolder(model, None, 0, False))
    assert made.split()
    made.accept({})
    return made


def test_a_module_that_stays_keeps_its_split(splitter):
    before = splitter._holder.split
    assert not splitter.split()
    assert splitter._holder.split is before


def test_a_number_that_changed_is_an_argument_from_then_on(splitter):
    dropout = splitter._holder.module.layers[1]
    dropout.rate = 0.25
    assert splitter.has_new_constants()
    assert splitter.split()
    (name,) = splitter.numbers
    assert "rate" in name and splitter.unproven == {name}
    splitter.accept({})
    dropout.rate = 0.1
    assert not splitter.has_new_constants()


def test_a_number_with_which_nothing_is_traced_is_a_constant_again(splitter):
    splitter._holder.module.layers[1].rate = 0.25
    splitter.split()
    assert splitter.drop_unproven()
    assert not splitter.numbers and not splitter.drop_unproven()
    splitter._holder.module.layers[1].rate = 0.1
    splitter.split()
    assert not splitter.numbers


def test_frozen_layers_are_noticed_once(splitter):
    assert not splitter.has_other_parameters()
    splitter._holder.module.layers[0].trainable = False
    assert splitter.has_other_parameters()
    assert splitter.split()
    assert not splitter.has_other_parameters()
