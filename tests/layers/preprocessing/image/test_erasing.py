"""Tests of ``exburn.layers.preprocessing.image.erasing``."""

import numpy as np
from tests.layers.preprocessing.image.some import BATCH, augment

from exburn import layers as L


def test_erasing_leaves_the_rest():
    y = augment(L.RandomErasing((1.0, 1.0), (0.1, 0.3), fill_value=0), BATCH * 200 + 1)
    erased = (y == 0).all(-1)
    np.testing.assert_allclose(y[~erased], (BATCH * 200 + 1)[~erased], rtol=1e-6)
    assert (erased.sum((1, 2)) > 0).all()
    rows, columns = np.nonzero(erased[0])
    assert erased[
        0, rows.min() : rows.max() + 1, columns.min() : columns.max() + 1
    ].all()


COLOURS = [
    ("RandomErasing", {"factor": (1, 1), "scale": (1, 1), "fill_value": 0.2}, 1),
]
