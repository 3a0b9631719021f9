"""What a layer is called on, as arrays of its policy's dtype; and what it returns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn.errors import DTypeError


class Seen(exburn.layers.Layer):
    """Keeps the dtypes that its call gets, and returns what it got."""

    def call(self, x, other=None):
        self.seen = [str(v.dtype) for v in jax.tree.leaves((x, other))]
        self.same = x is other
        return x if other is None else (x, other)


@pytest.mark.parametrize(
    ("policy", "seen", "returned"),
    [
        ("mixed_bfloat16", "bfloat16", "bfloat16"),
        ("float32", "float32", "float32"),
        (
            exburn.PrecisionPolicy(compute="float16", output="float32"),
            "float16",
            "float32",
        ),
    ],
)
def test_floats_are_cast_and_others_stay(policy, seen, returned):
    layer = Seen(dtype=policy)
    outputs = layer({"a": np.ones(2), "n": np.arange(2, dtype="int32")})
    assert layer.seen == [seen, "int32"]
    assert [str(outputs[k].dtype) for k in "an"] == [returned, "int32"]


def test_an_array_given_twice_is_one_array_and_a_layer_may_cast_nothing():
    x = jnp.ones(2)
    layer = Seen(dtype="float16")
    layer(x, other=x)
    layer(x, x)
    assert layer.same
    plain = Seen(dtype="float16", autocast=False)
    plain(x)
    assert plain.seen == ["float32"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (np.array(["a"]), "arrays must hold numbers"),
        (np.array([None]), "arrays must hold numbers"),
        ([1.0, 2.0], "called on arrays or symbols, received float"),
        (None, "missing `return`"),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(given, says):
    with pytest.raises(DTypeError, match=says):
        exburn.layers.Dense(2)(given)


def test_a_key_stays_a_key():
    key = jax.random.key(3)
    assert Seen(dtype="float16")(key).dtype == key.dtype
