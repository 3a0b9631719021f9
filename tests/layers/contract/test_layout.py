"""Tests of ``exburn.layers.contract.layout``."""

import numpy as np
import pytest

from exburn.errors import ArgumentError, ShapeError
from exburn.layers.contract import layout


def test_sizes_are_one_number_or_several():
    assert layout.check_sizes("Pool", "pool_size", 3, 2) == (3, 3)
    assert layout.check_sizes("Pool", "pool_size", np.array([1, 2]), 2) == (1, 2)
    assert layout.check_ranges("Pad", "padding", 1, 2) == ((1, 1), (1, 1))
    assert layout.check_ranges("Pad", "padding", (1, (0, 2)), 2) == ((1, 1), (0, 2))


@pytest.mark.parametrize("value", [0, 2.5, (1, 2, 3), "2", (1, -1)])
def test_sizes_that_cannot_be(value):
    with pytest.raises(ArgumentError, match="^Pool: pool_size"):
        layout.check_sizes("Pool", "pool_size", value, 2)


@pytest.mark.parametrize("value", [(1, 2, 3), -1, ((1, 2, 3), 1)])
def test_ranges_that_cannot_be(value):
    with pytest.raises(ArgumentError, match="^Pad: padding"):
        layout.check_ranges("Pad", "padding", value, 2)


def test_the_format_says_where_the_axes_are():
    assert layout.check_format("Conv2D", None) == layout.image_data_format()
    assert layout.check_format("Conv2D", "Channels_First") == "channels_first"
    assert layout.spatial_axes(2, "channels_last") == (1, 2)
    assert layout.spatial_axes(3, "channels_first") == (2, 3, 4)
    assert (
        layout.channel_axis("channels_last"),
        layout.channel_axis("channels_first"),
    ) == (-1, 1)
    with pytest.raises(ArgumentError, match="data_format is one of channels_last"):
        layout.check_format("Conv2D", "NHWC")


def test_a_window_that_fits_nowhere_is_an_error():
    x, y = np.zeros((2, 3, 1)), np.zeros((2, 0, 1))
    assert layout.check_output("Pool", x, x) is x
    with pytest.raises(ShapeError, match="larger than the input"):
        layout.check_output("Pool", x, y)
