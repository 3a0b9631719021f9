"""Memory is looked at before anything is drawn."""

import numpy as np
import pytest
from tests.tuning.models import X, Y

import exburn
from exburn import layers
from exburn.errors import OutOfMemoryError

DRAWN: list[int] = []


class Noted(exburn.initializers.Initializer):
    def __call__(self, shape, dtype=None):
        DRAWN.append(int(np.prod(shape)))
        assert DRAWN[-1] < 1 << 28
        return np.zeros(shape, dtype)


def make_model():
    model = exburn.Sequential(
        [
            exburn.Input((5,)),
            layers.Dense(4, "relu", kernel_initializer=Noted(), name="hidden"),
            layers.Dense(4, "softmax", kernel_initializer=Noted(), name="second"),
            layers.Dense(3, kernel_initializer=Noted()),
        ]
    )
    model.compile("adam", "cross_entropy")
    return model


@pytest.mark.parametrize("path", ["hidden/units", "second/units"])
@pytest.mark.parametrize("begin", [exburn.sweep, exburn.sweep.plan])
def test_a_width_that_no_memory_holds_is_told_before_it_is_drawn(begin, path):
    model = make_model()
    DRAWN.clear()
    with pytest.raises(OutOfMemoryError, match=f"{path}=1000000000000") as caught:
        begin(model, X, Y, over={path: [4, 10**12]}, batch_size=8)
    assert "available" in str(caught.value)
    assert max(DRAWN, default=0) <= 20


@pytest.mark.parametrize("path", ["hidden/units", "second/units"])
def test_a_plan_draws_nothing(path):
    model = make_model()
    DRAWN.clear()
    plan = exburn.sweep.plan(model, X, Y, over={path: [4, 50_000]}, batch_size=8)
    assert plan.state_bytes > 3 * 4 * 50_000 * 8  # with Adam's slots
    assert max(DRAWN, default=0) <= 20
