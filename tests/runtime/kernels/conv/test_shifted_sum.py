"""Tests of ``exburn.runtime.kernels.conv.shifted_sum``."""

import jax
import numpy as np
import pytest
from jax import lax

from exburn.runtime.kernels.conv.shifted_sum import (
    exburn_depthwise,
    pointwise,
    repeat_channels,
    windows,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 7, 6, 4)).astype("float32")
LAYOUT = "NHWC", "HWIO", "NHWC"


@pytest.mark.parametrize(
    ("strides", "pads", "dilation"),
    [
        ((1, 1), ((0, 0), (0, 0)), (1, 1)),
        ((2, 1), ((1, 2), (0, 1)), (1, 2)),
        ((3, 2), ((0, 0), (2, 0)), (2, 1)),
    ],
)
def test_a_depthwise_convolution_is_that_of_xla(strides, pads, dilation):
    kernel = RNG.normal(size=(3, 2, 1, 8)).astype("float32")
    own = exburn_depthwise(X, kernel, strides, pads, dilation)
    plain = lax.conv_general_dilated(
        X,
        kernel,
        strides,
        pads,
        rhs_dilation=dilation,
        dimension_numbers=LAYOUT,
        feature_group_count=4,
    )
    np.testing.assert_allclose(own, plain, rtol=1e-5, atol=1e-5)


def test_a_window_of_one_entry_is_a_product_of_matrices():
    kernel = RNG.normal(size=(1, 1, 4, 5)).astype("float32")
    own = pointwise(X, kernel, (2, 1), ((0, 0), (1, 0)), (1, 1))
    padded = np.pad(X, ((0, 0), (0, 0), (1, 0), (0, 0)))[:, ::2]
    np.testing.assert_allclose(own, padded @ kernel[0, 0], rtol=1e-5, atol=1e-5)


def test_each_tap_meets_one_entry_for_each_output():
    x = np.arange(5, dtype="float32")[None, :, None]
    met = windows(x, (2,), (2,), ((1, 0),), (1,))
    assert [(tap, part.ravel().tolist()) for tap, part in met] == [
        ((0,), [0, 1, 3]),
        ((1,), [0, 2, 4]),
    ]


def test_channels_are_repeated_one_by_one():
    assert jax.jit(repeat_channels, static_argnums=1)(X[0, 0, :1], 8).tolist() == [
        np.repeat(X[0, 0, 0], 2).tolist()
    ]
