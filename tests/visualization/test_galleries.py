"""Tests of ``exburn.visualization.galleries``."""

import numpy as np
import pytest
from tests.golden import keras
from tests.visualization.framed import IMAGES, MASKS

import exburn
from exburn import visualization
from exburn.errors import ArgumentError, DTypeError, ShapeError, UnknownNameError

Image = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize(
    "api",
    [exburn, keras],
    ids=["exburn", "keras"],
)
def test_a_gallery_is_saved(api, tmp_path):
    path = tmp_path / "grid.png"
    api.visualization.plot_image_gallery(
        IMAGES,
        y_true=np.array([0, 1]),
        y_pred=np.array([1, 7]),
        label_map={0: "zero", 1: "one"},
        rows=1,
        cols=2,
        path=str(path),
    )
    with Image.open(path) as picture:
        assert picture.width > 100


def test_what_a_gallery_shows():
    figure = visualization.plot_image_gallery(
        IMAGES / 255.0,
        y_true=[0, 1],
        y_pred=[1, 7],
        label_map={0: "zero", 1: "one"},
        value_range=(0, 1),
        show=False,
    )
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == ["Label: zero  Pred: one", "Label: one  Pred: Unknown"]
    for axis, image in zip(figure.axes, IMAGES, strict=True):
        shown = axis.images[0].get_array()
        assert np.abs(shown.astype(int) - image).max() <= 1


@pytest.mark.parametrize(
    "count, given, shape",
    [
        (5, {}, (3, 2)),  # Keras has one column, and shows three of them
        (4, {}, (2, 2)),
        (1, {}, (1, 1)),
        (6, {"rows": 2}, (2, 3)),
        (7, {"cols": 3}, (3, 3)),
        (5, {"rows": 1, "cols": 2}, (1, 2)),
    ],
)
def test_the_grid(count, given, shape):
    images = np.zeros((count, 4, 4, 3))
    figure = visualization.plot_image_gallery(images, show=False, **given)
    assert figure.axes[0].get_subplotspec().get_gridspec().get_geometry() == shape
    used = [axis for axis in figure.axes if axis.images]
    assert len(used) == min(count, shape[0] * shape[1])


def test_galleries_of_boxes_and_masks():
    boxes = {"boxes": [[[2, 2, 12, 12]]] * 2, "labels": [[0]] * 2}
    figure = visualization.plot_bounding_box_gallery(
        IMAGES, "xyxy", y_true=boxes, y_pred=boxes, legend=True, show=False
    )
    (legend,) = figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts == ["Ground Truth", "Prediction"]
    shown = figure.axes[0].images[0].get_array()
    assert (shown[2, 2:12] == (255, 235, 59)).all()  # the prediction's lies on top
    figure = visualization.plot_segmentation_mask_gallery(
        IMAGES, None, y_true=MASKS, y_pred=MASKS, show=False
    )
    rows = figure.axes[0].get_subplotspec().get_gridspec().get_geometry()
    assert rows == (2, 3)
    painted = visualization.draw_segmentation_masks(IMAGES, MASKS)
    np.testing.assert_array_equal(figure.axes[4].images[0].get_array(), painted[1])


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda v: v.plot_image_gallery(IMAGES[0]), ShapeError),
        (lambda v: v.plot_image_gallery(IMAGES, y_true=[0, 1]), ArgumentError),
        (
            lambda v: v.plot_image_gallery(IMAGES, path="a", show=True),
            ArgumentError,
        ),
        (lambda v: v.draw_bounding_boxes(IMAGES, [1], "xyxy"), ArgumentError),
        (lambda v: v.draw_bounding_boxes(IMAGES, {"boxes": []}, "xyxy"), ArgumentError),
        (
            lambda v: v.draw_bounding_boxes(
                IMAGES, {"boxes": np.zeros((2, 1, 3)), "labels": [[0]] * 2}, "xyxy"
            ),
            ShapeError,
        ),
        (
            lambda v: v.draw_bounding_boxes(
                IMAGES, {"boxes": np.zeros((2, 1, 4)), "labels": [[0]] * 2}, "xy"
            ),
            UnknownNameError,
        ),
        (lambda v: v.draw_segmentation_masks(IMAGES, MASKS * 1.0), DTypeError),
        (lambda v: v.draw_segmentation_masks(IMAGES, MASKS[:, :5]), ShapeError),
        (
            lambda v: v.draw_segmentation_masks(
                IMAGES, MASKS, color_mapping={1: [0, 0, 0]}
            ),
            ArgumentError,
        ),
    ],
)
def test_refusals(call, error):
    with pytest.raises(error):
        call(visualization)


def test_without_its_packages(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(exburn.errors.MissingDependencyError, match=r"exburn\[plot\]"):
        visualization.plot_image_gallery(IMAGES)
    monkeypatch.setitem(sys.modules, "PIL.ImageDraw", None)
    boxes = {"boxes": np.zeros((2, 1, 4)), "labels": [[0]] * 2}
    with pytest.raises(exburn.errors.MissingDependencyError, match="install pillow"):
        visualization.draw_bounding_boxes(IMAGES, boxes, "xyxy")
