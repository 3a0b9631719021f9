"""Boxes, masks and labels on images, and galleries of them."""

import numpy as np
import pytest

import exburn
from exburn import visualization
from exburn.errors import ArgumentError, DTypeError, ShapeError, UnknownNameError

keras = pytest.importorskip("keras")
matplotlib = pytest.importorskip("matplotlib")
Image = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 255, (2, 24, 32, 3)).astype("uint8")
BLACK = np.zeros((1, 40, 60, 3), "uint8")
RED = (255, 0, 0)


@pytest.fixture(autouse=True)
def no_screen():
    matplotlib.use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


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


MASKS = RNG.integers(0, 4, (2, 24, 32, 1)).astype("int32")


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


@pytest.mark.parametrize("api", [exburn, keras], ids=["exburn", "keras"])
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
