"""Tests of ``exburn.layers.preprocessing.image.mixing``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.layers.preprocessing.image.boxed import LABELS, WITH_BOXES, B

from exburn import key_scope
from exburn import layers as L
from exburn.core import forward_context
from exburn.errors import ArgumentError, DTypeError, ShapeError


def test_mixing_blends_labels_as_it_blends_images():
    x = np.ones((8, 10, 10, 1)) * np.arange(8).reshape(-1, 1, 1, 1)
    labels = np.eye(8, dtype="float32")
    for layer in (L.MixUp(1.0), L.CutMix((1.0, 1.0))):
        with key_scope(jax.random.key(0)):
            y = layer({"images": x, "labels": labels})
        mean = np.asarray(y["images"]).mean((1, 2, 3))
        np.testing.assert_allclose(y["labels"] @ np.arange(8), mean, rtol=1e-5)
        assert (np.asarray(y["labels"]) > 0.01).sum() > 8
        with pytest.raises(DTypeError, match="one-hot"):
            layer({"images": x, "labels": np.arange(8)})


def test_mixtures_have_the_boxes_of_both():
    layer = L.MixUp(bounding_box_format="xyxy")
    out = layer(WITH_BOXES)["bounding_boxes"]
    assert out["boxes"].shape == (3, 10, 4) and out["labels"].shape == (3, 10)
    np.testing.assert_array_equal(out["labels"][:, :5], LABELS)
    partner = np.asarray(out["labels"][:, 5]) // 5
    np.testing.assert_array_equal(out["labels"][:, 5:], LABELS[partner])
    np.testing.assert_allclose(out["boxes"][:, 5:], B[partner])
    out = layer(WITH_BOXES, training=False)["bounding_boxes"]
    np.testing.assert_array_equal(out["labels"], LABELS)


def numbered(size, height=6, width=8):
    """Images whose pixels tell their row of the batch, their row and their column."""
    return np.stack(
        np.meshgrid(range(size), range(height), range(width), indexing="ij"), -1
    ).astype("float32")


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_a_mosaic_has_pieces_of_four_images_that_meet_at_a_point(data_format):
    x = numbered(5)
    given = x if data_format == "channels_last" else x.transpose(0, 3, 1, 2)
    labels = np.eye(5, dtype="float32")
    layer = L.Mosaic((0.3, 0.7), seed=1, data_format=data_format)
    out = layer({"images": given, "labels": labels, "segmentation_masks": given})
    images = np.asarray(out["images"])
    np.testing.assert_array_equal(out["segmentation_masks"], images)
    images = images if given is x else images.transpose(0, 2, 3, 1)
    for i, (image, label) in enumerate(zip(images, out["labels"], strict=True)):
        row, column = image[..., 1], image[..., 2]
        top = int((6 - row[0, 0]) % 6)  # where the pieces meet
        left = int((8 - column[0, 0]) % 8)
        assert 0.3 * 6 - 0.5 <= top <= 0.7 * 6 + 0.5
        assert 0.3 * 8 - 0.5 <= left <= 0.7 * 8 + 0.5
        np.testing.assert_array_equal(
            row, ((np.arange(6) - top) % 6)[:, None] + 0 * row
        )
        np.testing.assert_array_equal(column, (np.arange(8) - left) % 8 + 0 * column)
        assert (image[:top, :left, 0] == i).all()
        for piece in (image[:top, left:], image[top:, :left], image[top:, left:]):
            assert len(np.unique(piece[..., 0])) == 1
        shares = [(image[..., 0] == n).mean() for n in range(5)]
        np.testing.assert_allclose(label, shares, atol=1e-6)


def test_a_mosaic_takes_no_row_that_is_only_padding():
    x, labels = numbered(6), np.eye(6, dtype="float32")
    context = forward_context.Context(
        training=True, key=jax.random.key(0), row_mask=jnp.arange(6) < 4
    )
    with forward_context.forward(context):
        out = L.Mosaic()({"images": x, "labels": labels}, training=True)
    assert not np.asarray(out["labels"])[:4, 4:].any()
    assert set(np.unique(np.asarray(out["images"])[:4, ..., 0])) <= {0, 1, 2, 3}


def test_a_mosaic_of_one_image_is_the_image_moved():
    image = numbered(1)[0]
    out = L.Mosaic((0.5, 0.5))({"images": image, "labels": np.float32([0, 1])})
    np.testing.assert_array_equal(out["images"], np.roll(image, (3, 4), (0, 1)))
    np.testing.assert_allclose(out["labels"], [0, 1])


def test_a_mosaic_has_the_boxes_of_four_images():
    layer = L.Mosaic((0.5, 0.5), bounding_box_format="xyxy")
    out = layer(WITH_BOXES)["bounding_boxes"]
    assert out["boxes"].shape == (3, 20, 4) and out["labels"].shape == (3, 20)
    height, width = WITH_BOXES["images"].shape[1:3]
    boxes, labels = np.asarray(out["boxes"]), np.asarray(out["labels"])
    assert (boxes >= 0).all() and (boxes <= [width, height, width, height]).all()
    left = boxes[:, :5][labels[:, :5] >= 0]
    assert (left[:, 2] <= width / 2).all() and (left[:, 3] <= height / 2).all()


@pytest.mark.parametrize(
    "options, data, error",
    [
        ({"offset": (0.2, 1.5)}, {}, ArgumentError),
        ({"offset": "middle"}, {}, ArgumentError),
        ({}, {"labels": np.arange(3)}, DTypeError),
        ({}, {"labels": np.eye(3, dtype="int32")}, DTypeError),
        ({}, {"labels": np.float32([0, 1, 2])}, ShapeError),
        ({}, {"bounding_boxes": WITH_BOXES["bounding_boxes"]}, ArgumentError),
    ],
)
def test_a_mosaic_refuses_what_it_cannot_mix(options, data, error):
    with pytest.raises(error):
        L.Mosaic(**options)({"images": numbered(3), **data})
