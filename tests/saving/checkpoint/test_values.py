"""Nested Python values as JSON, with their arrays taken out."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from exburn.errors import CheckpointError
from exburn.saving.checkpoint.values import decode, encode, equal

VALUES = [
    {"a": 1, "b": [1.5, None, True, "x"], "c": {}},
    {"nan": float("nan"), "inf": float("-inf"), "tiny": 5e-324},
    {"tuple": (1, (2, [3]))},
    {1: "int key", None: 2, (1, 2): 3},
    {"$": "a tag of ours", "x": [{"$": "array"}]},
    {"scalar": np.float32(0.1), "array": np.arange(3), "bf": jnp.ones(2, "bfloat16")},
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_values_come_back_as_they_were(value):
    kept = {}
    text = json.dumps(encode(value, kept, "p"))
    assert all(name.startswith("p/") for name in kept)
    again = decode(json.loads(text), kept)
    assert equal(again, value)
    assert not equal([again], value)


def test_a_value_that_cannot_be_kept_is_named():
    with pytest.raises(CheckpointError, match=r"run/x/0 is a set"):
        encode({"x": [{1, 2}]}, {}, "run")
    shared = np.ones(2)
    kept = {}
    encode(shared, kept, "w")
    shared[:] = 5  # after the snapshot
    assert kept["w"].tolist() == [1, 1]
