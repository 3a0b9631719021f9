"""Tests of ``exburn.optimizers.contract.exclusions``."""

import jax
import keras as peer
import numpy as np
import pytest
from tests.golden import keras

import exburn
from exburn import optimizers
from exburn.errors import ArgumentError
from exburn.optimizers import SGD


def plain(rate=1.0, **options):
    return SGD(rate, momentum=0.0, **options)


def one_step(optimizer, grads, params):
    return optimizer.update(grads, optimizer.init(params), params)


def decayed(library):
    """Two variables of equal names, the second of which is excluded."""
    first, second = library.Variable(2.0), library.Variable(2.0)
    optimizer = library.optimizers.Adam(1.0, weight_decay=0.004)
    optimizer.exclude_from_weight_decay(var_list=[second])
    zero = np.zeros((), "float32")
    optimizer.apply_gradients([(zero, first), (zero, second)])
    return float(first.value), float(second.value)


def test_exclusion_from_weight_decay(trajectories):
    def make(library):
        optimizer = library.Lion(weight_decay=0.5)
        optimizer.exclude_from_weight_decay(var_names=["bias", "^kern$"])
        return optimizer

    theirs = trajectories.keras(lambda: make(keras.optimizers))
    trajectories.assert_close(trajectories.ours(make(optimizers)), theirs)


def test_exclusions_hold_for_both_decays():
    params = {"d": {"kernel": np.ones(1, np.float32), "bias": np.ones(1, np.float32)}}
    zeros = jax.tree.map(np.zeros_like, params)
    for option in ("weight_decay", "l2_weight_decay"):
        optimizer = plain(0.5, **{option: 0.5})
        optimizer.exclude_from_weight_decay(var_list=["d/bias"])
        new, _ = one_step(optimizer, zeros, params)
        assert (float(new["d"]["kernel"][0]), float(new["d"]["bias"][0])) == (0.75, 1.0)
        copy = type(optimizer).from_config(optimizer.get_config())
        assert copy.weight_decay_exclusions == optimizer.weight_decay_exclusions
    optimizer.bind(lambda: optimizer.init(params), lambda state: None)
    with pytest.raises(ArgumentError, match="compile"):
        optimizer.exclude_from_weight_decay(var_names=["kernel"])


def test_the_variable_given_is_excluded_and_not_its_namesake():
    assert decayed(exburn) == pytest.approx(decayed(peer))
    assert decayed(exburn) == pytest.approx((2 * 0.996, 2.0))
