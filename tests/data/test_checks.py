"""What must hold of data before anything is compiled for them."""

import jax.numpy as jnp
import numpy as np
import pytest

from exburn.data.checks import check_finite, prepare
from exburn.errors import DataError, ShapeError

X, Y = np.ones((4, 2), np.float32), np.ones((4, 1), np.float32)


def test_weights_are_float32_of_one_axis():
    _, _, weight = prepare(X, Y, np.ones((4, 1), "int32"), "fit")
    assert (weight.shape, weight.dtype) == ((4,), "float32")


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ((X, Y[:3], None), DataError, "x and y must have the same number of rows"),
        (([], None, None), DataError, "holds no arrays"),
        ((X[:0], Y[:0], None), DataError, "is empty"),
        ((X, Y, np.ones((4, 2))), ShapeError, "one weight a row"),
        ((X, Y, np.array([1, -1, 1, 1])), DataError, "-1.0 at row 1"),
        ((X, Y, np.array([1, 1, np.inf, 1])), DataError, "inf at row 2"),
    ],
)
def test_what_does_not_fit_is_named(given, error, says):
    with pytest.raises(error, match=says):
        prepare(*given, "fit")


@pytest.mark.parametrize("kind", [np, jnp])
def test_the_first_value_that_is_not_finite_has_a_place(kind):
    bad = np.ones((5, 3), np.float32)
    bad[2, 1], bad[4] = np.nan, np.inf
    with pytest.raises(DataError, match=r"row 2, position \(2, 1\)") as caught:
        check_finite((X, {"a": kind.asarray(bad)}), ("x", "y"), op="evaluate")
    text = str(caught.value)
    assert text.startswith("evaluate: y['a'] must be finite") and "2 of 5" in text


def test_integers_and_large_sums_are_finite():
    check_finite((np.arange(3), np.full(4, 3e38, np.float32), None))
