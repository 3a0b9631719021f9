"""Tests of ``exburn.optimizers.contract.live``."""

import keras as peer
import numpy as np
import pytest

import exburn
from exburn.errors import ArgumentError

ONES = np.ones((2, 2), "float32")


@pytest.mark.parametrize(
    ("name", "options"),
    [("SGD", {"momentum": 0.9}), ("Adagrad", {}), ("Lion", {"weight_decay": 0.1})],
)
def test_no_gradient_leaves_a_variable_and_its_slots(name, options):
    def run(library):
        idle, moving = library.Variable(ONES), library.Variable(ONES)
        optimizer = getattr(library.optimizers, name)(0.1, **options)
        optimizer.apply_gradients([(ONES, idle), (ONES, moving)])
        before = np.asarray(idle.value)
        with pytest.warns(UserWarning, match=r"[Gg]radients"):
            optimizer.apply_gradients([(None, idle), (ONES, moving)])
        np.testing.assert_array_equal(idle.value, before)
        optimizer.apply_gradients([(ONES, idle), (ONES, moving)])  # as a second time
        return idle.value, moving.value

    for ours, theirs in zip(run(exburn), run(peer), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_no_gradient_at_all():
    variable = exburn.Variable(ONES)
    with pytest.raises(ArgumentError, match="no variable has a gradient"):
        exburn.optimizers.SGD().apply_gradients([(None, variable)])
