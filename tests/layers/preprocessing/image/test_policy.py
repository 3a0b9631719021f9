"""Tests of ``exburn.layers.preprocessing.image.policy``."""

import numpy as np
import pytest

from exburn import Input
from exburn.errors import ArgumentError, ShapeError
from exburn.layers import AugMix, RandAugment

IMAGES = np.random.default_rng(0).uniform(0, 255, (2, 6, 5, 3)).astype("float32")
BOTH = pytest.mark.parametrize("cls", [AugMix, RandAugment])


@BOTH
def test_inference_and_the_inferred_shape(cls):
    layer = cls()
    np.testing.assert_array_equal(layer(IMAGES, training=False), IMAGES)
    assert layer(Input((None, None, 3))).shape == (None, None, None, 3)


@BOTH
def test_its_changes_are_in_its_configuration(cls):
    layer = cls(value_range=(0, 1), factor=0.3, seed=4)
    config = layer.get_config()
    assert cls.from_config(config).get_config() == config
    assert layer.choices == len(layer.moves) + len(layer.tones)
    assert layer.choices >= 7


def test_colours_need_three_channels():
    with pytest.raises(ShapeError, match="3"):
        RandAugment()(IMAGES[..., :1], training=True)


@pytest.mark.parametrize(
    "options",
    [{"factor": 1.5}, {"value_range": (1, 0)}]
    + [{"interpolation": "cubic"}, {"num_ops": 1.5}],
)
def test_options_that_cannot_be(options):
    with pytest.raises(ArgumentError):
        RandAugment(**options)
