"""Tests of ``exburn.ops.filtering``, beside Keras' and on symbols."""

import pytest
from tests.ops.cases import (
    IMAGES,
    VOLUMES,
    case,
)
from tests.ops.check import Cases, check_symbols, check_unknown_batch, check_values

CASES = Cases(
    {
        "image.extract_patches": [
            case(IMAGES, 2),
            case(IMAGES, (3, 2), 1, 1, "same"),
            case(IMAGES, 2, 1, 2),
        ],
        "image.extract_patches_3d": [
            case(VOLUMES, 2),
            case(VOLUMES, (2, 3, 2), 1, 1, "same"),
        ],
        "image.gaussian_blur": [
            case(IMAGES, data_format="channels_last"),
            case(IMAGES[0], (5, 3), (2.0, 0.5), data_format="channels_last"),
        ],
        "image.sobel_edges": [case(IMAGES)],
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
    "name", ["image.extract_patches", "image.gaussian_blur", "image.sobel_edges"]
)
def test_batches_of_unknown_size(name):
    check_unknown_batch(CASES, name)
