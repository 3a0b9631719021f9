"""Tests of ``exburn.layers.contract.attention_positions``."""

import numpy as np
import pytest

from exburn.errors import ArgumentError, ShapeError
from exburn.layers.contract.attention_positions import Fold

X = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)


@pytest.mark.parametrize(
    ("axes", "folded"), [(None, (2, 12, 5)), ((1,), (8, 3, 5)), ((2,), (6, 4, 5))]
)
def test_axes_that_do_not_attend_are_more_batch(axes, folded):
    fold = Fold(X.shape, X.shape, axes)
    assert fold.query(X).shape == fold.source(X).shape == folded
    np.testing.assert_array_equal(fold.output(fold.query(X)), X)


def test_an_array_of_rank_three_stays():
    fold = Fold((2, 3, 5), (2, 4, 5), None)
    x = X[:, :, 0]
    assert fold.query(x) is x and fold.output(x) is x


def test_masks_are_brought_to_four_axes():
    fold = Fold((2, 3, 5), (2, 4, 5), None)
    used = np.ones((2, 4), bool)
    assert fold.position_mask(None, 2) is None
    assert fold.position_mask(used, 2).shape == (2, 1, 1, 4)
    assert fold.attention_mask(np.ones((3, 4))).shape == (1, 1, 3, 4)
    assert fold.attention_mask(np.ones((2, 3, 4))).shape == (2, 1, 3, 4)
    assert fold.attention_mask(np.ones((2, 7, 3, 4))).shape == (2, 7, 3, 4)
    rows = Fold(X.shape, X.shape, (2,))  # each row of 4 attends to itself
    assert rows.attention_mask(np.ones((2, 4, 4))).shape == (6, 1, 4, 4)
    assert rows.position_mask(np.ones((2, 3, 4)), 2).shape == (6, 1, 1, 4)


def test_what_cannot_be_folded():
    with pytest.raises(ArgumentError, match="no axes of positions"):
        Fold(X.shape, X.shape, (3,))
    with pytest.raises(ArgumentError, match="no axes of positions"):
        Fold(X.shape, X.shape, (1, 1))
    with pytest.raises(ShapeError, match="must be equal"):
        Fold((2, 3, 4, 5), (2, 6, 4, 5), (2,))
    with pytest.raises(ShapeError, match="attention_mask"):
        Fold((2, 3, 5), (2, 4, 5), None).attention_mask(np.ones(4))
