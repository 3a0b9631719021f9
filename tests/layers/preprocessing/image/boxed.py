"""What the tests of preprocessing share."""

import jax
import numpy as np
from tests.golden import Calls
from tests.layers.preprocessing.cases import images

theirs = Calls("utils.bounding_boxes")
SIZE = 24, 36
_rng = np.random.default_rng(0)


def boxes(*shape):
    """``xyxy`` boxes in images of ``SIZE``."""
    size = np.array([36, 24])
    start = _rng.uniform(0, 0.8, (*shape, 2)) * size
    end = start + _rng.uniform(0.1, 0.6, (*shape, 2)) * size
    return np.concatenate([start, np.minimum(end, size)], -1).astype("float32")


B = boxes(3, 5)
LABELS = np.arange(15).reshape(3, 5)
X = images(3, *SIZE, 3)

WITH_BOXES = {
    "images": X,
    "labels": np.eye(3, dtype="float32"),
    "bounding_boxes": {"boxes": B, "labels": LABELS},
}


def in_format(form):
    moved = theirs.convert_format(B, "xyxy", form, *SIZE)
    return {**WITH_BOXES, "bounding_boxes": {"boxes": moved, "labels": LABELS}}


def fresh(data):
    """A copy: Keras' layers write into what they are given."""
    return jax.tree.map(np.array, data)
