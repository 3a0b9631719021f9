"""Tests of ``exburn.ops.image``, beside Keras' and on symbols."""

import numpy as np
import pytest
from tests.ops.cases import (
    IMAGES,
    case,
)
from tests.ops.check import Cases, check_symbols, check_unknown_batch, check_values
from tests.ops.small import ROWS

from exburn import errors, ops

CASES = Cases(
    {
        "image.crop_images": [
            case(IMAGES, 1, 2, target_height=3, target_width=4),
            case(IMAGES[0], 1, 2, 0, 3),
        ],
        "image.hsv_to_rgb": [case(IMAGES)],
        "image.pad_images": [
            case(IMAGES, 1, 2, target_height=9, target_width=11),
            case(IMAGES[0], 1, 2, 0, 3),
        ],
        "image.rgb_to_grayscale": [case(IMAGES)],
        "image.rgb_to_hsv": [case(IMAGES)],
    }
)


@pytest.mark.parametrize(("name", "i"), CASES.rows)
@pytest.mark.filterwarnings("ignore:invalid value|overflow|divide by zero")
def test_values_are_those_of_keras(name, i, golden):
    check_values(CASES, name, i, golden)


@pytest.mark.parametrize(("name", "i"), CASES.rows)
def test_shapes_of_symbols_are_those_of_arrays(name, i):
    check_symbols(CASES, name, i)


@pytest.mark.parametrize(
    "name", ["image.crop_images", "image.pad_images", "image.rgb_to_hsv"]
)
def test_batches_of_unknown_size(name):
    check_unknown_batch(CASES, name)


@pytest.mark.parametrize(
    ("call", "error"),
    [
(lambda: ops.image.crop_images(ROWS[..., None], 1), errors.ArgumentError),
(lambda: ops.image.rgb_to_hsv(np.ones((2, 2, 3), int)), errors.ArgumentError),
],
)  # fmt: skip
def test_refusals(call, error):
    with pytest.raises(error):
        call()
