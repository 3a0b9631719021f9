"""One array out of whatever stands for one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.data.arrays import as_array, describe, on_host
from exburn.errors import DataError, DTypeError, ExBurnError, ShapeError


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (np.ones(2, "float64"), "float32"),
        (np.ones(2, "float16"), "float32"),
        (np.arange(2, dtype="int64"), "int32"),
        (np.arange(2, dtype="uint8"), "uint8"),
        (np.array([True, False]), "bool"),
    ],
)
def test_dtypes_that_programs_compute_with(given, dtype):
    made = as_array(given, "x", "fit")
    assert made.dtype == dtype
    np.testing.assert_array_equal(made, given)


def test_nothing_is_copied_that_fits():
    for given in (np.ones(2, "float32"), jnp.ones(2)):
        assert as_array(given, "x", "fit") is given
    assert on_host(given) is not None and describe(given) == "float32[2]"


def test_raw_values_stay_for_lookups():
    for given in (np.array(["a"], object), np.array([2**40])):
        assert as_array(given, "x", "fit", raw=True) is given
        with pytest.raises(DTypeError):
            as_array(given, "x", "fit")


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (3.0, DTypeError, "not float"),
        (np.float32(3), ShapeError, "leading axis of samples"),
        (np.array([1 + 2j]), DTypeError, "np.stack"),
        (np.ma.array([1.0], mask=[True]), DTypeError, "masked array"),
        (np.array([2**31]), DTypeError, "JAX computes in int32"),
        (object(), DTypeError, "must be an array"),
    ],
)
def test_others_are_refused(given, error, says):
    with pytest.raises(error, match=says) as caught:
        as_array(given, "x['a']", "fit")
    assert isinstance(caught.value, ExBurnError)
    assert "x['a']" in str(caught.value)


def test_a_number_in_a_list_says_what_a_list_is():
    with pytest.raises(DTypeError, match=r"of rows: np\.array\(x\)"):
        as_array(3.0, "x[0]", "fit")


def test_arrays_without_values_are_refused():
    gone = jnp.ones(2)
    gone.delete()
    with pytest.raises(DataError, match="has been deleted"):
        as_array(gone, "x", "fit")

    def traced(x):
        with pytest.raises(DTypeError, match="holds no values"):
            as_array(x, "x", "fit")
        return x

    jax.eval_shape(traced, gone)
