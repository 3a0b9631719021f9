"""Tests of ``exburn.layers.preprocessing.discretization``."""

import numpy as np
import pytest
from tests.golden import keras
from tests.layers.check_layer import check_layer
from tests.layers.preprocessing.numbers import FLAT, rng

from exburn import layers as L
from exburn.errors import ArgumentError, NotBuiltError

KERAS_CONFIGS = [
    (
        "Discretization",
        {
            "bin_boundaries": [2.0, 5.0],
            "num_bins": 3,
            "epsilon": 0.01,
            "output_mode": "int",
            "sparse": False,
            "name": "d",
            "dtype": "float32",
        },
    ),
]


@pytest.mark.parametrize("mode", ["int", "one_hot", "multi_hot", "count"])
@pytest.mark.parametrize("x", [FLAT, FLAT[:, :1], FLAT[0]], ids=["2d", "column", "1d"])
def test_discretization_as_in_keras(mode, x, golden):
    cuts = [0.0, 2.0, 3.5]
    ours = L.Discretization(cuts, output_mode=mode)
    y = golden(lambda: keras.layers.Discretization(cuts, output_mode=mode)(x))
    np.testing.assert_array_equal(ours(x), y)
    assert ours(x).dtype == y.dtype


def test_values_on_a_boundary_belong_above():
    assert L.Discretization([0.0, 1.0])(np.array([0.0, 1.0, -0.1])).tolist() == [
        1,
        2,
        0,
    ]
    integers = L.Discretization([2024.0], dtype="bfloat16")
    assert integers(np.array([2023, 2024])).tolist() == [0, 1]


@pytest.mark.parametrize("bins", [1, 2, 5, 10])
def test_bins_hold_the_same_share_of_the_data(bins):
    data = rng.normal(size=1000).astype("float32")
    layer = L.Discretization(num_bins=bins)
    layer.adapt([data[:313], data[313:]])
    assert len(layer.bin_boundaries) == bins - 1
    counts = np.bincount(layer(data), minlength=bins)
    assert np.abs(counts - 1000 / bins).max() <= 1
    copy = L.Discretization.from_config(layer.get_config())
    assert copy.bin_boundaries == layer.bin_boundaries and copy.num_bins == bins
    copy.adapt(data + 1)
    assert bins == 1 or copy.bin_boundaries != layer.bin_boundaries


def test_quantiles_are_those_that_keras_approximates(golden):
    # so few that Keras is exact as well
    data = np.random.default_rng(1).normal(size=60).astype("float32")

    def of_keras():
        from keras.src.layers.preprocessing import discretization as theirs

        return theirs.get_bin_boundaries(theirs.summarize(data, 0.01), 7)

    layer = L.Discretization(num_bins=7)
    layer.adapt(data)
    np.testing.assert_allclose(layer.bin_boundaries, golden(of_keras), rtol=1e-5)


def test_discretization_contract_and_errors():
    check_layer(
        lambda **o: L.Discretization([0.0, 1.0], output_mode="one_hot", **o),
        FLAT,
        differentiable=False,
    )
    for wrong in ({}, {"bin_boundaries": [1.0], "num_bins": 2}):
        with pytest.raises(ArgumentError):
            L.Discretization(**wrong)
    with pytest.raises(ArgumentError, match="ascend"):
        L.Discretization([1.0, 0.0])
    with pytest.raises(ArgumentError, match="given"):
        L.Discretization([1.0]).adapt(FLAT)
    with pytest.raises(ArgumentError, match="output_mode"):
        L.Discretization([1.0], output_mode="two_hot")
    with pytest.raises(NotBuiltError, match="adapt"):
        L.Discretization(num_bins=3)(FLAT)
