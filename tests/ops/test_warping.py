"""Tests of ``exburn.ops.warping``, beside Keras' and on symbols."""

import numpy as np
import pytest
from tests.ops.cases import (
    IMAGES,
    Draws,
    X,
    case,
)
from tests.ops.check import Cases, check_symbols, check_unknown_batch, check_values

draws = Draws()
floats, ints = draws.floats, draws.ints
CASES = Cases(
    {
        "image.affine_transform": [
            case(
                IMAGES,
                np.array([1, 0.2, -1, 0.1, 0.9, 0.5, 0, 0], "float32")[None].repeat(
                    2, 0
                ),
            ),
            case(IMAGES[0], [0.8, 0, 1, 0, 1.2, 0, 0, 0], "nearest", "reflect"),
        ],
        "image.map_coordinates": [
            case(X, floats(2, 5) * 3, 1),
            case(X, floats(2, 5) * 9 - 3, 0, "wrap"),
        ],
        "image.perspective_transform": [
            case(
                IMAGES[0],
                np.array([[0, 0], [7, 0], [0, 5], [7, 5]], "float32"),
                np.array([[1, 1], [6, 0], [0, 4], [7, 5]], "float32"),
            )
        ],
        "image.resize": [
            case(IMAGES, (4, 5)),
            case(IMAGES, (12, 9), "nearest"),
            case(IMAGES, (3, 4), "bicubic", antialias=True),
            case(IMAGES[0], (4, 4), crop_to_aspect_ratio=True),
            case(IMAGES, (4, 4), pad_to_aspect_ratio=True, fill_value=2.0),
            case(IMAGES, (4, 5), "lanczos3", data_format="channels_first"),
            case((IMAGES * 255).astype("uint8"), (4, 5)),
        ],
        "image.scale_and_translate": [
            case(
                X,
                (6, 8),
                np.array([2.0, 2.0], "float32"),
                np.array([0.5, 0.0], "float32"),
                (0, 1),
                "linear",
            )
        ],
    }
)


@pytest.mark.parametrize(("name", "i"), CASES.rows)
@pytest.mark.filterwarnings("ignore:invalid value|overflow|divide by zero")
def test_values_are_those_of_keras(name, i, golden):
    check_values(CASES, name, i, golden)


@pytest.mark.parametrize(("name", "i"), CASES.rows)
def test_shapes_of_symbols_are_those_of_arrays(name, i):
    check_symbols(CASES, name, i)


@pytest.mark.parametrize("name", ["image.affine_transform", "image.resize"])
def test_batches_of_unknown_size(name):
    check_unknown_batch(CASES, name)
