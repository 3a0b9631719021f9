"""Names of dtypes."""

import jax.numpy as jnp
import numpy as np
import pytest

from exburn.core.precision.names import DTYPES, is_float, lowest_of, standardize_dtype
from exburn.errors import DTypeError


def test_every_spelling_is_one_name():
    for name in DTYPES:
        assert standardize_dtype(name) == name == standardize_dtype(jnp.dtype(name))
    for given, name in ((int, "int32"), ("float", "float32"), (bool, "bool")):
        assert standardize_dtype(given) == name
    assert standardize_dtype(jnp.bfloat16) == "bfloat16"


@pytest.mark.parametrize("given", ["float33", 3, object(), np.dtype([("a", "f4")])])
def test_what_is_no_dtype_is_refused(given):
    with pytest.raises(DTypeError, match="not a dtype"):
        standardize_dtype(given)


def test_floats_and_least_values():
    assert [n for n in DTYPES if is_float(n)] == DTYPES[-4:]
    for name in DTYPES:
        least = lowest_of(name)
        assert least.dtype == name
        assert not np.any(np.array([0, 1]).astype(name) < least)
    assert lowest_of("bfloat16") == -np.inf
