"""Variables of one name, and variables without a gradient, as in Keras."""

import keras as peer
import numpy as np
import pytest

import exburn
from exburn.errors import ArgumentError

ONES = np.ones((2, 2), "float32")


def decayed(library):
    """Two variables of equal names, the second of which is excluded."""
    first, second = library.Variable(2.0), library.Variable(2.0)
    optimizer = library.optimizers.Adam(1.0, weight_decay=0.004)
    optimizer.exclude_from_weight_decay(var_list=[second])
    zero = np.zeros((), "float32")
    optimizer.apply_gradients([(zero, first), (zero, second)])
    return float(first.value), float(second.value)


def test_the_variable_given_is_excluded_and_not_its_namesake():
    assert decayed(exburn) == pytest.approx(decayed(peer))
    assert decayed(exburn) == pytest.approx((2 * 0.996, 2.0))


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
