"""Tests of ``exburn.layers.preprocessing.image.box_count``."""

import numpy as np
import pytest

from exburn.errors import ArgumentError
from exburn.layers import MaxNumBoundingBoxes

IMAGES = np.random.default_rng(0).uniform(size=(2, 5, 6, 3)).astype("float32")
BOXES = np.arange(2 * 3 * 4, dtype="float32").reshape(2, 3, 4)
LABELS = np.array([[1, 2, 3], [4, 5, -1]])


def counted(number, **options):
    data = {"images": IMAGES, "bounding_boxes": {"boxes": BOXES, "labels": LABELS}}
    return MaxNumBoundingBoxes(number, **options)(data)


def test_the_first_stay_and_images_are_as_they_were():
    out = counted(2)
    np.testing.assert_array_equal(out["images"], IMAGES)
    np.testing.assert_array_equal(out["bounding_boxes"]["boxes"], BOXES[:, :2])
    np.testing.assert_array_equal(out["bounding_boxes"]["labels"], LABELS[:, :2])


def test_those_that_are_missing_are_filled_up():
    boxes = counted(5, fill_value=-7)["bounding_boxes"]
    assert boxes["boxes"].shape == (2, 5, 4)
    np.testing.assert_array_equal(boxes["boxes"][:, :3], BOXES)
    assert (np.asarray(boxes["boxes"][:, 3:]) == -7).all()
    assert (np.asarray(boxes["labels"][:, 3:]) == -7).all()


@pytest.mark.parametrize("number", [0, 1.5, "3"])
def test_numbers_that_cannot_be(number):
    with pytest.raises(ArgumentError, match="max_number"):
        MaxNumBoundingBoxes(number)
