"""Tests of ``exburn.layers.preprocessing.image.base``."""

import numpy as np
import pytest
from tests.layers.preprocessing.cases import make
from tests.layers.preprocessing.image.some import BATCH, MIXING, augment, one

from exburn import layers as L

SOME = ["RandomTranslation", "RandomCrop", "CutMix"]


def test_the_seed_is_folded_in():
    first = augment(L.RandomBrightness(0.3), BATCH)
    np.testing.assert_array_equal(augment(L.RandomBrightness(0.3), BATCH), first)
    assert not np.array_equal(augment(L.RandomBrightness(0.3, seed=1), BATCH), first)


@pytest.mark.parametrize("name", SOME)
def test_an_image_alone_and_the_other_axis_order(name):
    first = make(name, data_format="channels_first")
    x = BATCH.transpose(0, 3, 1, 2)
    expected = augment(one(name), BATCH)
    np.testing.assert_allclose(
        augment(first, x).transpose(0, 2, 3, 1), expected, atol=1e-5
    )
    if name not in MIXING:
        alone = augment(one(name), BATCH[0])
        np.testing.assert_allclose(alone, augment(one(name), BATCH)[0], atol=1e-5)


def test_bytes_become_floats():
    x = (BATCH * 255).astype("uint8")
    for training in (True, False):
        assert L.RandomFlip()(x, training=training).dtype == np.float32
    half = L.RandomBrightness(0.1, dtype="mixed_bfloat16")
    assert half(x).dtype == "bfloat16"
