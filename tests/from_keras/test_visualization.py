"""The page's section "Visualization"; ``tests/visualization`` has more."""

import sys

import numpy as np
import pytest
from tests.from_keras.page import says

import exburn
from exburn import visualization

keras = pytest.importorskip("keras")
matplotlib = pytest.importorskip("matplotlib")
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 255, (2, 24, 32, 3)).astype("uint8")
MASKS = RNG.integers(0, 4, (2, 24, 32, 1)).astype("int32")


@pytest.fixture(autouse=True)
def no_screen():
    matplotlib.use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@says("draws with Pillow and matplotlib")
def test_what_draws(monkeypatch):
    boxes = {"boxes": np.array([[[2.0, 2, 12, 12]]] * 2), "labels": [[0]] * 2}
    monkeypatch.setitem(sys.modules, "cv2", None)
    drawn = visualization.draw_bounding_boxes(IMAGES, boxes, "xyxy")
    assert (drawn != IMAGES).any()
    module = sys.modules[keras.visualization.draw_bounding_boxes.__module__]
    monkeypatch.setattr(module, "cv2", None)
    with pytest.raises(ImportError, match="OpenCV|opencv|cv2"):
        keras.visualization.draw_bounding_boxes(IMAGES, boxes, "xyxy")


@says("`draw_segmentation_masks` paints the classes from 1 on")
def test_classes_that_are_painted():
    """Keras paints the background black, and of four classes three in color."""
    classes = MASKS[..., 0]
    ours = visualization.draw_segmentation_masks(IMAGES, MASKS)
    for label in range(4):
        painted = (ours[classes == label] != IMAGES[classes == label]).any()
        assert painted == (label > 0)
    theirs = keras.visualization.draw_segmentation_masks(IMAGES, MASKS)
    for label in range(4):
        painted = (theirs[classes == label] != IMAGES[classes == label]).any()
        assert painted == (label < 3)


@says("A gallery has room for all images")
def test_the_grid_of_a_gallery(tmp_path, monkeypatch):
    """For five images Keras makes three rows of one."""
    from matplotlib import pyplot

    images = np.zeros((5, 4, 4, 3))
    figure = visualization.plot_image_gallery(images, show=False)
    assert len([axis for axis in figure.axes if axis.images]) == 5
    pyplot.close("all")
    monkeypatch.setattr(pyplot, "close", lambda *args: None)
    keras.visualization.plot_image_gallery(
        images, value_range=(0, 1), path=str(tmp_path / "grid.png")
    )
    assert len([axis for axis in pyplot.gcf().axes if axis.images]) == 3


@says("lays models out itself and returns the drawing")
def test_pictures_of_models(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pydot", None)
    model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(3)])
    for name in ("model.svg", "model.png"):
        drawn = exburn.utils.plot_model(model, tmp_path / name, show_shapes=True)
        assert len(drawn.boxes) == 2 and (tmp_path / name).stat().st_size > 500
