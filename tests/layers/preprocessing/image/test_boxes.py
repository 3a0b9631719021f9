"""Tests of ``exburn.layers.preprocessing.image.boxes``."""

import itertools

import jax
import numpy as np
import pytest
from tests.golden import keras
from tests.layers.preprocessing.image.boxed import (
    LABELS,
    SIZE,
    WITH_BOXES,
    B,
    X,
    fresh,
    in_format,
    theirs,
)

import exburn
from exburn import layers as L
from exburn.errors import ArgumentError, ShapeError
from exburn.utils import bounding_boxes as ours

ABSOLUTE = ["xyxy", "yxyx", "xywh", "center_xywh", "center_yxhw"]
FORMATS = [*ABSOLUTE, "rel_xyxy", "rel_yxyx", "rel_xywh", "rel_center_xywh"]

WAYS = {
    "flip": (L.RandomFlip, (), {}),
    "rotation": (L.RandomRotation, (0.06,), {"fill_mode": "constant"}),
    "zoom": (L.RandomZoom, (0.3, 0.2), {"fill_mode": "constant"}),
    "translation": (L.RandomTranslation, (0.4, 0.4), {"fill_mode": "constant"}),
    "shear": (L.RandomShear, (0.3, 0.2), {"fill_mode": "constant"}),
    "perspective": (L.RandomPerspective, ((1.0, 1.0), 0.4), {}),
    "crop": (L.RandomCrop, (40, 50), {}),
    "crop to fit": (L.RandomCrop, (80, 50), {}),
    "policy": (L.RandAugment, (), {"factor": 0.1, "num_ops": 3}),
}


@pytest.mark.parametrize("source", FORMATS)
def test_formats_as_in_keras(source):
    for target in FORMATS:
        got = ours.convert_format(B, source, target, *SIZE)
        expected = theirs.convert_format(B, source, target, *SIZE)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
        back = ours.convert_format(got, target, source, *SIZE)
        np.testing.assert_allclose(back, B, rtol=1e-5, atol=1e-4)


def test_a_dictionary_of_boxes_is_not_changed():
    given = {"boxes": [[1, 2, 3, 4]], "labels": [7]}
    got = ours.convert_format(given, "XYXY", "xywh", dtype="float16")
    assert got["boxes"].tolist() == [[1, 2, 2, 2]] and got["boxes"].dtype == "float16"
    assert got["labels"] == [7] and given["boxes"] == [[1, 2, 3, 4]]


@pytest.mark.parametrize("center", [(), (0.2, 0.7)], ids=str)
def test_affine_transform_as_in_keras(center):
    drawn = np.random.default_rng(1).uniform(-1, 1, (6, 3)).astype("float32")
    turn, x, y, scale, shear_x, shear_y = drawn
    numbers = [turn * 90, x / 5, y / 5, 1 + scale / 2, shear_x * 20, shear_y * 20]
    got = ours.affine_transform(B, *numbers, *SIZE, *center)
    expected = theirs.affine_transform(B, *numbers, *SIZE, *center)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-3)
    one = ours.affine_transform(B[0], *[n[0] for n in numbers], *SIZE, *center)
    np.testing.assert_allclose(one, got[0], rtol=1e-5)


@pytest.mark.parametrize("form", ABSOLUTE)
def test_overlaps_as_in_keras(form):
    for first, second in itertools.product((B, B[0]), (B[::-1], B[1, :3])):
        got = jax.jit(lambda a, b: ours.compute_iou(a, b, form))(first, second)
        np.testing.assert_allclose(
            got, theirs.compute_iou(first, second, form), atol=1e-5
        )
    got = jax.jit(lambda a, b: ours.compute_ciou(a, b, form))(B, B[::-1])
    np.testing.assert_allclose(got, theirs.compute_ciou(B, B[::-1], form), atol=1e-5)


def test_overlaps_of_relative_and_of_absent_boxes():
    part = ours.convert_format(B, "xyxy", "rel_yxyx", *SIZE)
    shape = (*SIZE, 3)
    np.testing.assert_allclose(
        ours.compute_iou(part[0], part[1], "rel_yxyx", image_shape=shape),
        theirs.compute_iou(B[0], B[1], "xyxy"),
        atol=1e-5,
    )
    # Keras refuses relative boxes here, whatever image_shape is.
    np.testing.assert_allclose(
        ours.compute_ciou(part, part[::-1], "rel_yxyx", image_shape=shape),
        ours.compute_ciou(B, B[::-1], "xyxy"),
        atol=1e-5,
    )
    absent = B.copy()
    absent[:, 2] = -1
    for first, second in ((absent, absent), (absent[0], absent[1])):
        np.testing.assert_allclose(
            ours.compute_iou(first, second, "xyxy", True, -3),
            theirs.compute_iou(first, second, "xyxy", True, -3),
            atol=1e-5,
        )


@pytest.mark.parametrize("encoding", ["center_xywh", "center_yxhw"])
@pytest.mark.parametrize("variance", [None, [0.1, 0.1, 0.2, 0.2]], ids=str)
def test_deltas_as_in_keras(encoding, variance):
    rest = "xyxy", "xyxy", encoding, variance
    got = ours.encode_box_to_deltas(B[0], B, *rest)
    expected = theirs.encode_box_to_deltas(B[0], B, *rest)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    rest = "xyxy", "rel_xywh", encoding, variance, (*SIZE, 3)
    back = ours.decode_deltas_to_boxes(B[0], got, *rest)
    expected = theirs.decode_deltas_to_boxes(B[0], got, *rest)
    np.testing.assert_allclose(back, expected, rtol=1e-4, atol=1e-4)
    levels = ours.decode_deltas_to_boxes({3: B[0]}, {3: got}, *rest)
    np.testing.assert_array_equal(levels[3], back)


def test_cuts_and_borders_as_in_keras():
    np.testing.assert_allclose(
        ours.crop(B, 3, 4, 10, 12), theirs.crop(B, 3, 4, 10, 12), atol=1e-5
    )
    np.testing.assert_allclose(ours.pad(B, 3, 4), theirs.pad(B, 3, 4), atol=1e-5)
    for form, moved in (("xyxy", B - 10), ("rel_xyxy", B / 20 - 0.3)):
        given = {"boxes": moved, "labels": LABELS}
        got = ours.clip_to_image_size(given, 15, 16, form)
        expected = theirs.clip_to_image_size(dict(given), 15, 16, form)
        np.testing.assert_allclose(got["boxes"], expected["boxes"], atol=1e-5)
        np.testing.assert_array_equal(got["labels"], expected["labels"])
        assert (np.asarray(got["labels"]) == -1).any()


def test_labels_of_boxes_outside():
    out = [[-5.0, -5.0, -1.0, -1.0], [0.0, 0.0, 2.0, 2.0]]
    hot = {"boxes": out, "labels": np.eye(2)}
    labels = ours.clip_to_image_size(hot, 4, 4)["labels"]
    np.testing.assert_array_equal(labels, [[-1, -1], [0, 1]])
    small = {"boxes": out, "labels": np.array([200, 200], "uint8")}
    assert ours.clip_to_image_size(small, 4, 4)["labels"].tolist() == [-1, 200]


def test_refused_arguments():
    for call in (
        lambda: ours.convert_format(B, "xyxy", "corners"),
        lambda: ours.convert_format(B, "xyxy", "rel_xyxy"),
        lambda: ours.clip_to_image_size({"boxes": B}, 3, 3, "xywh"),
        lambda: ours.clip_to_image_size({"boxes": B}),
        lambda: ours.crop(B, 0, 0, 1, 1, "yxyx"),
        lambda: ours.encode_box_to_deltas(B, B, "xyxy", "xyxy", "xyxy"),
        lambda: ours.decode_deltas_to_boxes(B, B, "xyxy", "xyxy", variance=[1.0]),
        lambda: L.RandomFlip(bounding_box_format="corners"),
    ):
        with pytest.raises(ArgumentError):
            call()
    for call in (
        lambda: ours.convert_format(B[..., :3], "xyxy", "xywh"),
        lambda: ours.compute_iou(B[0, 0], B[0, 0], "xyxy"),
    ):
        with pytest.raises(ShapeError):
            call()


MOVES = [
    ("Resizing", (10, 12), {}),
    ("Resizing", (10, 12), {"pad_to_aspect_ratio": True}),
    ("Resizing", (10, 12), {"crop_to_aspect_ratio": True}),
    ("CenterCrop", (10, 12), {}),
    ("CenterCrop", (40, 12), {}),
    ("RandomTranslation", ((0.2, 0.2), (-0.3, -0.3)), {}),
    ("RandomZoom", ((0.2, 0.2), (-0.3, -0.3)), {}),
    ("RandomRotation", ((0.1, 0.1),), {}),
    ("RandomBrightness", (0.1,), {}),
    ("RandomErasing", ((1.0, 1.0),), {}),
    ("MaxNumBoundingBoxes", (7,), {}),
    ("MaxNumBoundingBoxes", (3,), {"fill_value": 0}),
]


@pytest.mark.parametrize(
    ("name", "args", "options", "form"),
    [
        *((*move, form) for move in MOVES for form in ("xyxy", "rel_xywh")),
        *((*MOVES[0], form) for form in ("yxyx", "center_xywh")),
    ],
)
def test_layers_move_boxes_as_in_keras(name, args, options, form, golden):
    options = {**options, "bounding_box_format": form}
    data = in_format(form)
    got = getattr(L, name)(*args, **options)(data, training=True)["bounding_boxes"]
    if name == "RandomRotation":  # Keras reads boxes as xyxy there, whatever they are
        data = WITH_BOXES
    peer = lambda: getattr(keras.layers, name)(*args, **options)  # noqa: E731
    expected = golden(lambda: peer()(fresh(data), training=True)["bounding_boxes"])
    np.testing.assert_allclose(got["boxes"], expected["boxes"], atol=1e-4)
    np.testing.assert_array_equal(got["labels"], expected["labels"])


@pytest.mark.parametrize(
    ("way", "form"),
    [
        *((way, "xyxy") for way in WAYS),
        *((way, "rel_center_xywh") for way in ("flip", "rotation", "crop to fit")),
    ],
)
def test_boxes_stay_around_what_they_hold(way, form):
    cls, args, options = WAYS[way]
    n, size = 8, (60, 90)
    masks = np.zeros((n, *size, 1), "float32")
    corners = np.zeros((n, 1, 4), "float32")
    rng = np.random.default_rng(0)
    for mask, box in zip(masks, corners, strict=True):
        left, top = rng.integers(25, 45), rng.integers(15, 30)
        right, bottom = left + rng.integers(8, 25), top + rng.integers(8, 20)
        mask[top:bottom, left:right] = 1
        box[:] = left, top, right, bottom
    data = {
        "images": np.repeat(masks, 3, -1),
        "segmentation_masks": masks,
        "bounding_boxes": {
            "boxes": ours.convert_format(corners, "xyxy", form, *size),
            "labels": np.ones((n, 1), int),
        },
    }
    out = cls(*args, **options, bounding_box_format=form)(data, training=True)
    new_size = out["images"].shape[1:3]
    found = ours.convert_format(out["bounding_boxes"]["boxes"], form, "xyxy", *new_size)
    moved = 0
    for mask, box, old in zip(
        np.asarray(out["segmentation_masks"])[..., 0],
        np.asarray(found)[:, 0],
        corners[:, 0],
        strict=True,
    ):
        rows, columns = np.nonzero(mask)
        tight = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        # upright boxes around turned ones are wider than what is in them
        slack = {"rotation": 7, "policy": 14}.get(way, 3)
        assert (np.abs(box - tight) < slack).all(), (box, tight)
        moved += np.abs(box - old).max() > 1
    assert moved >= 3


def test_inference_and_images_alone():
    layer = L.RandomTranslation(0.3, 0.3, bounding_box_format="xyxy")
    out = layer(WITH_BOXES, training=False)
    np.testing.assert_array_equal(out["bounding_boxes"]["boxes"], B)
    one = jax.tree.map(lambda v: v[0], WITH_BOXES)
    out = layer(one, training=True)["bounding_boxes"]
    assert out["boxes"].shape == (5, 4) and out["labels"].shape == (5,)
    assert not np.allclose(out["boxes"], B[0])
    first = {**one, "images": one["images"].transpose(2, 0, 1)}
    cut = L.CenterCrop(10, 12, bounding_box_format="xyxy")(one)
    turned = L.CenterCrop(
        10, 12, data_format="channels_first", bounding_box_format="xyxy"
    )(first)
    jax.tree.map(
        np.testing.assert_allclose, cut["bounding_boxes"], turned["bounding_boxes"]
    )


def test_boxes_within_a_model():
    shapes = {
        "images": exburn.Input((*SIZE, 3)),
        "bounding_boxes": {
            "boxes": exburn.Input((None, 4)),
            "labels": exburn.Input((None,), dtype="int32"),
        },
    }
    out = L.Resizing(12, 18, bounding_box_format="xyxy")(shapes)
    model = exburn.Model(shapes, out)
    data = {k: v for k, v in WITH_BOXES.items() if k != "labels"}
    found = model.predict(data, verbose=0)["bounding_boxes"]
    np.testing.assert_allclose(found["boxes"], B / 2, atol=1e-5)
    np.testing.assert_array_equal(found["labels"], LABELS)


def test_errors():
    for layer, data, text in (
        (L.RandomFlip(), WITH_BOXES, "bounding_box_format"),
        (
            L.RandomFlip(bounding_box_format="xyxy"),
            {"images": X, "bounding_boxes": {"boxes": B}},
            "labels",
        ),
        (
            L.RandomElasticTransform(bounding_box_format="xyxy"),
            WITH_BOXES,
            "elastic",
        ),
        (L.CutMix(bounding_box_format="xyxy"), WITH_BOXES, "rectangle"),
    ):
        with pytest.raises(ArgumentError, match=text):
            layer(data, training=True)
    ragged = {"boxes": [B[0], B[1, :2], B[2]], "labels": LABELS}
    with pytest.raises(ShapeError, match="same number of bounding boxes"):
        layer = L.RandomFlip(bounding_box_format="xyxy")
        layer({"images": X, "bounding_boxes": ragged}, training=True)
    wrong = {"images": X, "bounding_boxes": {"boxes": B[0], "labels": LABELS}}
    with pytest.raises(ShapeError, match=r"\[batch, n, 4\]"):
        L.RandomFlip(bounding_box_format="xyxy")(wrong)


def test_the_format_is_in_the_configuration():
    layer = L.RandomZoom(0.2, bounding_box_format="REL_xyxy")
    copy = L.RandomZoom.from_config(layer.get_config())
    assert copy.bounding_box_format == "rel_xyxy"
