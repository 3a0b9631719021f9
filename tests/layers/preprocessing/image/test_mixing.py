"""Tests of ``exburn.layers.preprocessing.image.mixing``."""

import jax
import numpy as np
import pytest
from tests.layers.preprocessing.image.boxed import LABELS, WITH_BOXES, B

from exburn import key_scope
from exburn import layers as L
from exburn.errors import DTypeError


@pytest.mark.long
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


@pytest.mark.long
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
