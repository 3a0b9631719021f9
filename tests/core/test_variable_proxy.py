"""Handles of one array of someone else's state."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.core.variable_proxy import Handle, own_array
from exburn.errors import ShapeError


class Entry(Handle):
    """An array in a dict."""

    def __init__(self, state, name):
        self.state, self.name, self.path = state, name, f"owner/{name}"

    @property
    def value(self):
        return self.state[self.name]

    def _replace(self, value):
        self.state[self.name] = value


@pytest.fixture
def entry():
    return Entry({"count": jnp.arange(3.0)}, "count")


def test_it_computes_as_its_array(entry):
    x = np.arange(3.0, dtype=np.float32)
    for found, wanted in (
        (entry + 1, x + 1),
        (2 - entry, 2 - x),
        (entry * entry, x * x),
        (1 / (entry + 1), 1 / (x + 1)),
        (-entry, -x),
        (entry @ x, x @ x),
        (entry[1:], x[1:]),
        (entry > 1, x > 1),
        (jnp.exp(entry), np.exp(x)),
        (np.asarray(entry), x),
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert (entry.shape, entry.ndim, entry.dtype, len(entry)) == ((3,), 1, "float32", 3)
    assert repr(entry) == "<Entry owner/count float32[3]>"


def test_it_is_its_value_in_a_compiled_function(entry):
    assert jax.jit(lambda v: v["a"].sum() + 1)({"a": entry}) == 4


def test_what_is_assigned_has_its_dtype_and_fills_its_shape(entry):
    given = np.array([1, 2, 3])
    assert entry.assign(given) is entry
    given[:] = 0  # it was copied
    np.testing.assert_array_equal(entry.numpy(), [1, 2, 3])
    assert entry.dtype == "float32"
    entry.assign_add(1).assign_sub(entry)
    np.testing.assert_array_equal(entry, [0, 0, 0])
    entry.assign(5)
    np.testing.assert_array_equal(entry, [5, 5, 5])
    with pytest.raises(ShapeError, match=r"owner/count: .* \(3,\), received \(2,\)"):
        entry.assign(np.ones(2))
    one = Entry({"n": jnp.asarray(2)}, "n")
    assert (int(one), float(one), bool(one)) == (2, 2.0, True)


def test_an_array_that_was_given_is_not_shared(entry):
    given = jnp.ones(3)
    entry.assign(given)
    assert entry.value is not given
    assert own_array(given, "int32").dtype == "int32"
    assert jax.eval_shape(lambda x: own_array(x, x.dtype), given).shape == (3,)
