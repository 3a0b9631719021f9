"""The precision of matrix products, for the whole process."""

import jax
import jax.numpy as jnp
import pytest

from exburn.core.precision.matmul import get_matmul_precision, set_matmul_precision
from exburn.errors import UnknownNameError


def test_it_holds_for_what_is_traced_from_now_on_and_tells_what_was_before():
    start = get_matmul_precision()

    def text():
        return str(jax.make_jaxpr(lambda x: x @ x)(jnp.ones((2, 2))))

    try:
        assert set_matmul_precision("highest") == start
        assert get_matmul_precision() == "highest" and "HIGHEST" in text()
        assert set_matmul_precision(None) == "highest"
        assert get_matmul_precision() is None and "HIGHEST" not in text()
    finally:
        set_matmul_precision(start)


def test_an_unknown_one_changes_nothing():
    start = get_matmul_precision()
    with pytest.raises(UnknownNameError, match="highest"):
        set_matmul_precision("highst")
    assert get_matmul_precision() == start
