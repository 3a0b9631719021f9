"""Tests of ``exburn.visualization.drawing``."""

import numpy as np
import pytest
from tests.golden import keras
from tests.visualization.framed import IMAGES, MASKS, RNG

from exburn import visualization

BLACK = np.zeros((1, 40, 60, 3), "uint8")
RED = (255, 0, 0)


def framed(boxes, kind, images=BLACK, **options):
    given = {"boxes": [boxes], "labels": [[0] * len(boxes)]}
    drawn = visualization.draw_bounding_boxes(
        images, given, kind, color=RED, line_thickness=1, **options
    )
    rows, columns = np.nonzero((drawn[0] == RED).all(-1))
    return rows.min(), columns.min(), rows.max(), columns.max(), len(rows)


@pytest.mark.parametrize(
    "kind, box",
    [
        ("xyxy", [10, 5, 30, 20]),
        ("yxyx", [5, 10, 20, 30]),
        ("xywh", [10, 5, 20, 15]),
        ("center_xywh", [20, 12.5, 20, 15]),
        ("center_yxhw", [12.5, 20, 15, 20]),
        ("rel_xyxy", [10 / 60, 5 / 40, 30 / 60, 20 / 40]),
        ("rel_yxyx", [5 / 40, 10 / 60, 20 / 40, 30 / 60]),
        ("rel_xywh", [10 / 60, 5 / 40, 20 / 60, 15 / 40]),
        ("rel_center_xywh", [20 / 60, 12.5 / 40, 20 / 60, 15 / 40]),
    ],
)
def test_boxes_of_every_format(kind, box):
    # top, left, bottom, right, and the pixels of the line around
    assert framed([box], kind) == (5, 10, 20, 30, 2 * (20 + 15))


@pytest.mark.parametrize("kind", ["xyxy", "rel_yxyx", "center_xywh", "xywh"])
def test_formats_are_those_of_keras(kind):
    box = np.array([[[0.2, 0.3, 0.6, 0.7]]]) * (1 if "rel" in kind else 20)
    there = keras.utils.bounding_boxes.convert_format(
        {"boxes": box, "labels": [[0]]}, kind, "xyxy", 40, 60
    )
    found = np.asarray(there["boxes"])[0, 0].round(3).clip(0)
    left, top, right, bottom = found.astype(int)
    assert framed(box[0].tolist(), kind)[:4] == (top, left, bottom, right)


def test_what_is_drawn_beside_boxes():
    boxes = {"boxes": [[[5, 20, 50, 38], [0, 0, 9, 9]]], "labels": [[3, -1]]}
    plain = visualization.draw_bounding_boxes(BLACK, boxes, "xyxy", color=RED)
    named = visualization.draw_bounding_boxes(
        BLACK, boxes, "xyxy", {3: "cat"}, color=RED, font_scale=0.5
    )
    sure = visualization.draw_bounding_boxes(
        BLACK,
        {**boxes, "confidences": [[0.75, 0.1]]},
        "xyxy",
        {3: "cat"},
        color=RED,
        font_scale=0.5,
    )
    counts = [int(picture.any(-1).sum()) for picture in (plain, named, sure)]
    assert counts[0] < counts[1] < counts[2]
    assert not plain[0, :9, :5].any()  # the label -1 stands for no box
    assert named.dtype == np.uint8 and named.shape == BLACK.shape
    assert not BLACK.any()  # what was given stays


@pytest.mark.parametrize("channels", [1, 3])
def test_axes_and_ranges(channels):
    boxes = {"boxes": [[[5, 5, 20, 20]]], "labels": [[0]]}
    images = RNG.random((1, 30, 40, channels)).astype("float32")
    last = visualization.draw_bounding_boxes(images, boxes, "xyxy")
    first = visualization.draw_bounding_boxes(
        images.transpose(0, 3, 1, 2), boxes, "xyxy", data_format="channels_first"
    )
    np.testing.assert_array_equal(first.transpose(0, 2, 3, 1), last)
    untouched = np.ones((30, 40), bool)
    untouched[5:21, 5:21] = False
    np.testing.assert_array_equal(
        last[0][untouched], (images[0][untouched] * 255).astype("uint8")
    )


@pytest.mark.parametrize("options", [{}, {"alpha": 0.3}, {"ignore_index": 2}])
def test_masks_are_painted_as_in_keras(options):
    """But for the background, which Keras paints black, and the last class."""
    mine = visualization.draw_segmentation_masks(IMAGES, MASKS, **options)
    theirs = keras.visualization.draw_segmentation_masks(IMAGES, MASKS, 4, **options)
    classes = MASKS[..., 0]
    np.testing.assert_array_equal(mine[classes > 0], theirs[classes > 0])
    np.testing.assert_array_equal(mine[classes == 0], IMAGES[classes == 0])


def test_colors_of_masks():
    colors = {0: [9, 9, 9], 1: [255, 0, 0], 2: [0, 255, 0], 3: [0, 0, 255]}
    drawn = visualization.draw_segmentation_masks(
        IMAGES, MASKS[..., 0], color_mapping=colors, blend=False
    )
    for label, color in colors.items():  # the background, too, since it has one
        assert (drawn[MASKS[..., 0] == label] == color).all()
    few = visualization.draw_segmentation_masks(IMAGES, MASKS, num_classes=1)
    kept = MASKS[..., 0] != 1
    np.testing.assert_array_equal(few[kept], IMAGES[kept])
    first = visualization.draw_segmentation_masks(
        IMAGES.transpose(0, 3, 1, 2),
        MASKS.transpose(0, 3, 1, 2),
        color_mapping=colors,
        blend=False,
        data_format="channels_first",
    )
    np.testing.assert_array_equal(first.transpose(0, 2, 3, 1), drawn)
