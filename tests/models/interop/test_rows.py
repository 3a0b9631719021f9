"""Inputs cut into batches, and outputs joined again."""

import jax.numpy as jnp
import numpy as np
import pytest

from exburn.errors import DataError, DTypeError
from exburn.models.interop.rows import as_dtype, in_batches, row_count

X = np.arange(10, dtype=np.float32).reshape(5, 2)


def test_dtypes_change_where_nothing_is_lost_by_far():
    int32, float32 = np.dtype("int32"), np.dtype("float32")
    assert as_dtype(np.array([1.0, 2.0]), int32, "x").tolist() == [1, 2]
    assert as_dtype(np.array([True]), float32, "x").dtype == "float32"
    assert as_dtype(X, float32, "x") is X
    for bad in ([1.5], [np.nan], [2.0**40]):
        with pytest.raises(DataError, match="numbers that it cannot hold"):
            as_dtype(np.array(bad), int32, "x")
    with pytest.raises(DTypeError, match="x must hold float32"):
        as_dtype(np.array(["a"]), float32, "x")


@pytest.mark.parametrize(
    ("padded", "exact", "sizes"),
    [(False, False, [2, 2, 1]), (True, False, [2, 2, 2]), (True, True, [2, 2, 2])],
)
def test_batches_are_run_and_joined(padded, exact, sizes):
    seen = []

    def run(leaves):
        seen.append(len(leaves[0]))
        return {"out": jnp.asarray(leaves[0]).sum(-1)}

    found = in_batches(run, [X], 2, padded=padded, exact=exact)["out"]
    np.testing.assert_array_equal(found, X.sum(-1))
    assert seen == sizes and type(found) is np.ndarray


def test_a_small_input_is_filled_to_a_power_of_two_unless_the_size_is_fixed():
    seen = []

    def run(leaves):
        seen.append(len(leaves[0]))
        return leaves[0]

    for exact in (False, True):
        found = in_batches(run, [X[:3]], 32, padded=True, exact=exact)
        np.testing.assert_array_equal(found, X[:3])
    assert seen == [4, 32]


def test_rows_must_be_shared():
    for leaves in ([], [X, X[:2]], [X[:0]], [np.float32(1)]):
        with pytest.raises(DataError, match="share a first axis"):
            row_count(leaves)
    with pytest.raises(DataError, match="one row for each of the 2 rows"):
        in_batches(lambda leaves: leaves[0].sum(0), [X[:, :1]], 2, padded=False)
