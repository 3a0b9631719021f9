"""Tests of ``exburn.ops.warping``, beside Keras' and on symbols."""

import numpy as np
from tests.ops.cases import IMAGES, Draws, X, case
from tests.ops.check import Cases
from tests.ops.small import RGB, ROWS

from exburn import Input, errors, ops

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


UNKNOWN_BATCH = ["image.affine_transform", "image.resize"]


def test_elastic_transform_moves_pixels_both_ways():
    image = np.random.default_rng(0).uniform(size=(1, 24, 24, 1)).astype("float32")
    rows = np.broadcast_to(np.arange(24.0)[:, None, None], (24, 24, 1))
    both = np.stack([rows, rows.swapaxes(0, 1)]).astype("float32")
    moved = ops.image.elastic_transform(both, 10.0, 3.0, seed=1)
    apart = np.asarray(moved) - both
    assert np.abs(apart).mean() > 0.3
    down, right = apart[0, 4:-4, 4:-4, 0].ravel(), apart[1, 4:-4, 4:-4, 0].ravel()
    assert abs(np.corrcoef(down, right)[0, 1]) < 0.5
    again = ops.image.elastic_transform(image[0], 10.0, 3.0, seed=2)
    assert again.shape == (24, 24, 1)
    assert not np.allclose(again, image[0])


def test_affine_transform_divides_by_the_projective_row():
    image = np.arange(6.0, dtype="float32").reshape(1, 6, 1)
    moved = ops.image.affine_transform(image, [1.0, 0, 0, 0, 1.0, 0, 1.0, 0])
    x = np.arange(6.0)
    np.testing.assert_allclose(moved.ravel(), x / (x + 1), rtol=1e-6)


def test_an_axis_that_stays_as_it_is():
    factor, shape = np.array([2.0, 2.0], "float32"), (None, 8, 8, 3)
    moved = (factor, 0 * factor, (1, 2), "linear")
    assert ops.image.scale_and_translate(RGB, shape, *moved).shape == (1, 8, 8, 3)
    symbol = ops.image.scale_and_translate(Input((4, 4, 3)), shape, *moved)
    assert symbol.shape == shape


REFUSALS = [
(lambda: ops.image.resize(ROWS[..., None], (2, 2), "area"), errors.ArgumentError),
(lambda: ops.image.resize(ROWS, (2, 2)), errors.ShapeError),
]  # fmt: skip
