"""Tests of ``exburn.preprocessing.image``."""

import numpy as np
import pytest
from tests.golden import keras

from exburn.errors import ShapeError
from exburn.preprocessing import image

X = np.random.default_rng(0).uniform(0, 255, (12, 20, 3)).astype("float32")


@pytest.mark.parametrize("size", [(8, 8), (5, 20), (24, 10)])
@pytest.mark.parametrize("interpolation", ["bilinear", "nearest"])
def test_the_middle_is_resized_as_in_keras(size, interpolation, golden):
    resize = lambda module: module.smart_resize(X, size, interpolation)  # noqa: E731
    own = resize(image)
    assert isinstance(own, np.ndarray)
    theirs = golden(lambda: resize(keras.preprocessing.image))
    np.testing.assert_allclose(own, theirs, rtol=1e-4, atol=1e-3)


def test_batches_and_channels_first():
    batch = np.stack([X, X[::-1]])
    both = image.smart_resize(batch, (4, 4))
    np.testing.assert_allclose(both[0], image.smart_resize(X, (4, 4)), rtol=1e-5)
    first = image.smart_resize(
        batch.transpose(0, 3, 1, 2), (4, 4), data_format="channels_first"
    )
    np.testing.assert_allclose(first.transpose(0, 2, 3, 1), both, rtol=1e-5)


def test_other_ranks_are_refused():
    with pytest.raises(ShapeError, match="rank 3"):
        image.smart_resize(X[0], (4, 4))
