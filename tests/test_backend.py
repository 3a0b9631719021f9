"""Tests of ``exburn.backend``."""

import itertools

import numpy as np
from tests.golden import keras

import exburn
from exburn import backend
from exburn.layers import Dense


def test_result_types_are_those_of_keras():
    names = "bool uint8 int8 int16 uint16 int32 uint32 float16 bfloat16 float32".split()
    for a, b in itertools.product([*names, bool, int, float], repeat=2):
        assert backend.result_type(a, b) == keras.backend.result_type(a, b)


def test_each_session_begins_with_weights_of_its_own():
    """As a tuner's trials: it clears the session before each of them."""

    def trials():
        exburn.set_random_seed(3)
        found = []
        for _ in range(2):
            backend.clear_session(free_memory=False)
            model = exburn.Sequential([exburn.Input((3,)), Dense(2)])
            found.append(model.get_weights()[0])
        exburn.set_random_seed(0)
        return found

    first, again = trials(), trials()
    assert np.abs(first[0] - first[1]).max() > 0.1
    np.testing.assert_array_equal(first, again)


def test_clear_session_keeps_models_working():
    layer = Dense(2)
    before = layer(np.ones((1, 3)))
    backend.clear_session()
    np.testing.assert_array_equal(layer(np.ones((1, 3))), before)
    assert backend.get_uid("fresh") == 1
    assert backend.is_keras_tensor(exburn.Input((2,)))
