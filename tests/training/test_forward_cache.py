"""How often a user's layer is traced before it trains, and what its passes cost."""

import jax
import numpy as np
import pytest

import exburn as keras
from exburn import layers
from exburn.training.forward_cache import ForwardCache
from exburn.training.module import SplitModule
from exburn.training.state_holder import StateHolder

X, Y = np.ones((37, 4), "float32"), np.ones((37, 1), "float32")


def model_that_counts(traces, function=lambda x: x):
    class Counting(layers.Layer):
        def call(self, x):
            traces.append(x.shape)
            return function(x)

    model = keras.Sequential([keras.Input((4,)), Counting(), layers.Dense(1)])
    model.compile("sgd", "mse")
    traces.clear()
    return model


def test_a_first_fit_traces_a_layer_three_times():
    traces = []
    model = model_that_counts(traces)
    model.fit(X, Y, batch_size=8, verbose=0)
    assert len(traces) == 3


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: x * x.shape[0], True),  # another number for each size
        (lambda x: x - x.mean(axis=0), True),
        (lambda x: x * 37.0, False),
    ],
    ids=["their number", "their mean", "no row"],
)
@pytest.mark.parametrize("rows", [1, 8, 194])
def test_one_trace_tells_whether_rows_mix(function, expected, rows):
    model = model_that_counts([], function)
    holder = StateHolder(model, None, 0, False)
    holder.current_split = SplitModule(model)
    passes = ForwardCache(holder)
    x = jax.ShapeDtypeStruct((rows, 4), "float32")
    assert passes.find(x, "train") is None
    passes.trace(x, "train")
    passes.latest = passes.find(x, "train")
    assert passes.mixes_rows("train") is expected
    assert passes.mixes_rows("test") is expected


def test_a_pass_over_other_rows_costs_in_proportion():
    model = model_that_counts([])
    holder = StateHolder(model, None, 0, False)
    holder.current_split = SplitModule(model)
    passes = ForwardCache(holder)
    passes.trace(jax.ShapeDtypeStruct((8, 4), "float32"), None)
    one, two = (
        passes.cost(jax.ShapeDtypeStruct((rows, 4), "float32")) for rows in (8, 16)
    )
    assert one is not None and two is not None and two.flops == 2 * one.flops
    assert passes.cost(jax.ShapeDtypeStruct((8, 5), "float32")) is None
