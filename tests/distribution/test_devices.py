"""Bodies of tests run where there are eight devices, and fail as others do."""

import jax
import pytest
from tests.distribution.devices import COUNT, on_devices

from exburn import distribution


@on_devices
def process(value):
    return len(jax.devices()), value


@on_devices
def fails(value):
    raise ArithmeticError(f"no {value}")


def test_the_process_has_eight_devices():
    assert process("as it was") == (COUNT, "as it was")


def test_a_failure_comes_back():
    with pytest.raises(ArithmeticError, match="no luck"):
        fails("luck")


@on_devices
@pytest.mark.parametrize("turn", [1, 2])
def test_no_test_leaves_a_distribution_behind(turn):
    assert distribution.distribution() is None
    distribution.set_distribution(distribution.DataParallel())
