"""Images in other sizes, beside what Pillow 13 makes of them."""

import numpy as np
import pytest
from tests.applications.image_cases import GOLDEN

from exburn.applications.resampling import FILTERS, resample

EXPECTED = np.load(GOLDEN)


@pytest.mark.parametrize("kind", FILTERS)
def test_pixels_are_those_of_pillow(kind):
    for number in range(12):
        expected = EXPECTED[f"pillow/{kind}/{number}"]
        noise = EXPECTED[f"noise/{number}"]
        found = resample(noise, expected.shape[:2], kind)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(
            resample(noise[..., :1], found.shape[:2], kind), expected[..., :1]
        )


@pytest.mark.parametrize("kind", [kind for kind in FILTERS if kind != "nearest"])
def test_numbers_that_are_not_whole_are_not_rounded(kind):
    x = np.random.default_rng(0).uniform(0, 255, (31, 22, 3))
    whole = resample(np.round(x), (12, 9), kind)
    found = resample(x, (12, 9), kind)
    assert found.dtype == "float32" and np.abs(found % 1).max() > 0.1
    assert np.abs(found - whole).max() < 2 and (whole % 1 == 0).all()
    constant = resample(np.full((31, 22, 1), 7.25), (40, 9), kind)
    np.testing.assert_allclose(constant, 7.25, rtol=1e-6)


def test_a_tall_image_is_resized_in_blocks():
    x = np.random.default_rng(0).integers(0, 256, (1500, 700, 3)).astype("uint8")
    found = resample(x, (15, 7), "box")
    means = x.reshape(15, 100, 7, 100, 3).mean((1, 3))
    np.testing.assert_allclose(found, means, atol=1.01)
