"""Every transform gives back what it was given."""

import numpy as np
import pytest

from exburn.errors import ArgumentError, ShapeError
from exburn.weights import (
    add,
    concat,
    permute,
    reshape,
    split,
    split_heads,
    stack,
    transpose,
)


def arrays(*shapes):
    rng = np.random.default_rng(0)
    return tuple(rng.normal(size=shape) for shape in shapes)


X, Y, Z = (4, 6), (6, 4), (6,)
CASES = [
    (transpose, [X], [Y]),
    (transpose(2, 3, 1, 0), [(5, 4, 2, 3)], [(2, 3, 4, 5)]),
    (split_heads, [X], [(4, 3, 2)]),
    (split_heads, [Z], [(3, 2)]),
    (split_heads(axis=0), [X], [(2, 2, 6)]),
    (split_heads(2), [X], [(4, 2, 3)]),
    (transpose >> split_heads, [(6, 4)], [(4, 2, 3)]),
    (reshape(4, 6), [X], [(2, 12)]),
    (permute((2, 0, 1), axis=0), [(6, 2)], [(6, 2)]),
    (split, [X], [(4, 2)] * 3),
    (split(axis=0, sizes=(1, 3)), [X], [(1, 6), (3, 6)]),
    (transpose >> split >> split_heads, [(12, 4)], [(4, 2, 2)] * 3),
    (concat, [X, X], [(4, 12)]),
    (transpose >> concat(axis=0), [X, X], [(12, 4)]),
    (stack, [Z, Z], [(2, 6)]),
    (stack(axis=-1), [Z, Z], [(6, 2)]),
    (permute((1, 0), axis=0) >> stack, [Z, Z], [(2, 6)]),
]


@pytest.mark.parametrize("change, there, here", CASES)
def test_there_and_back(change, there, here):
    given, wanted = arrays(*there), tuple(here)
    assert change.shapes(tuple(there), wanted) == wanted
    made = change.load(given, wanted)
    assert tuple(array.shape for array in made) == wanted
    for old, new in zip(given, change.save(made, len(there)), strict=True):
        np.testing.assert_array_equal(old, new)


def test_values_are_those_of_the_formulas():
    (kernel,) = (transpose >> split_heads).load(arrays((6, 4)), ((4, 3, 2),))
    np.testing.assert_array_equal(kernel[1, 2], arrays((6, 4))[0][4:6, 1])
    assert permute((2, 0, 1)).load((np.arange(3),), ((3,),))[0].tolist() == [2, 0, 1]
    first, second = arrays(Z, Z)
    (total,) = add.load((first, second), (Z,))
    np.testing.assert_array_equal(total, first + second)
    back = add.save((total,), 2)
    np.testing.assert_array_equal(back[0] + back[1], total)


@pytest.mark.parametrize(
    "change, shapes, wanted",
    [
        (transpose(1, 0), [(3,)], [(3,)]),
        (split_heads, [X], [(4, 5, 2)]),
        (split_heads(4), [X], [(4, 4, 2)]),
        (split_heads, [()], [(1, 1)]),
        (reshape, [X], [(5, 5)]),
        (permute((1, 0)), [(3,)], [(3,)]),
        (split, [(4, 5)], [(4, 2)] * 2),
        (split, [X, X], [X]),
        (split(axis=3), [X], [X]),
        (concat, [X, Y], [(4, 12)]),
        (stack, [X, Z], [(2, 6)]),
        (add, [X, Z], [X]),
    ],
)
def test_shapes_that_do_not_fit_are_told_before_anything_is_read(
    change, shapes, wanted
):
    with pytest.raises(ShapeError):
        change.shapes(tuple(shapes), tuple(wanted))


def test_options_out_of_range():
    with pytest.raises(ArgumentError, match="order"):
        transpose(0, 2)
    with pytest.raises(ArgumentError, match="order"):
        permute((0, 0))
    with pytest.raises(TypeError):
        transpose >> np.transpose
