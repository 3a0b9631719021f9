"""Texts of values: equal where the values are, in any process, and only there."""

import functools
import inspect
import os
import subprocess
import sys
from threading import Event
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import exburn
from exburn import losses, regularizers
from exburn.core import digests
from exburn.core.digests import describe_array, describe_value

X = np.arange(12, dtype=np.float32).reshape(3, 4)
FACTOR = 2.0


def scaled(y_true, y_pred):
    return FACTOR * (y_true - y_pred) ** 2


def documented(y_true, y_pred):
    """Twice the square."""
    return FACTOR * (y_true - y_pred) ** 2


documented.__name__ = "scaled"


def times(factor):
    return lambda x: factor * x


class Pair(NamedTuple):
    one: Any
    other: Any


class Own(losses.Loss):
    def __init__(self, power=2.0, table=None):
        super().__init__()
        self.power, self.table, self._cache = power, table, object()

    def call(self, y_true, y_pred):
        return abs(y_true - y_pred) ** self.power


class Third(Own):
    def call(self, y_true, y_pred):
        return abs(y_true - y_pred) ** 3


EQUAL = {
    "a tuple and a list": ((1, (2.0, None)), [1, [2.0, None]]),
    "a number of NumPy": (np.float32(0.5), 0.5),
    "dicts in another order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "an array of JAX": (X, jnp.asarray(X)),
    "an array in other memory": (X.T, np.ascontiguousarray(X.T)),
    "a function with a text": (scaled, documented),
    "a function under jit": (scaled, jax.jit(scaled)),
    "equal closures": (times(2), times(2)),
    "equal objects": (Own(3.0), Own(3.0)),
    "sets": ({"a", "b", "c"}, {"c", "b", "a"}),
    "a loss under another name": (
        losses.MeanSquaredError(name="a"),
        losses.MeanSquaredError(name="b"),
    ),
    "optax": (optax.adam(0.1), optax.adam(0.1)),
}
UNEQUAL = {
    "one bit": (X, np.nextafter(X, 1)),
    "a dtype": (X, X.astype(np.float64)),
    "a shape": (X, X.reshape(4, 3)),
    "texts": (np.array(["a", "b"], object), np.array(["a", "c"], object)),
    "long lists": ([*range(99)], [*range(98), 99]),
    "parts of a tuple with names": (Pair(X, 1), Pair(X, 2)),
    "closures": (times(2), times(3)),
    "arrays in closures": (times(X), times(X + 1)),
    "code": (lambda x: x + 1, lambda x: x + 2),
    "inner code": (lambda x: [v + 1 for v in x], lambda x: [v + 2 for v in x]),
    "partial": (functools.partial(scaled, 1), functools.partial(scaled, 2)),
    "options": (regularizers.L2(0.1), regularizers.L2(0.2)),
    "an own loss": (Own(2.0), Own(3.0)),
    "an own loss's array": (Own(table=X), Own(table=X + 1)),
    "a method": (Own(), Third()),
    "classes": (Own, Third),
    "losses of functions": (losses.get(times(2)), losses.get(times(3))),
    "optax' numbers": (optax.adam(0.1), optax.adam(0.2)),
    "optax' rules": (optax.adam(0.1), optax.sgd(0.1)),
    "optax' schedules": (
        optax.sgd(optax.cosine_decay_schedule(0.1, 10)),
        optax.sgd(optax.cosine_decay_schedule(0.1, 20)),
    ),
}


@pytest.mark.parametrize("case", EQUAL)
def test_equal_values_have_one_text(case):
    one, other = EQUAL[case]
    assert describe_value(one) == describe_value(other)


@pytest.mark.parametrize("case", UNEQUAL)
def test_other_values_have_other_texts(case):
    one, other = EQUAL.get(case) or UNEQUAL[case]
    assert describe_value(one) != describe_value(other)


def test_a_name_that_a_function_reads(monkeypatch):
    before = describe_value(scaled)
    monkeypatch.setitem(scaled.__globals__, "FACTOR", 3.0)
    assert describe_value(scaled) != before


def test_weights_of_a_model_that_a_loss_holds():
    network = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(2)])
    perceptual = lambda y, p: network(y) - network(p)  # noqa: E731
    before = describe_value(perceptual)
    assert describe_value(perceptual) == before
    names = {id(part): part.name for part in (network, *network.layers)}
    own = describe_value(perceptual, names)
    network.set_weights([w + 1 for w in network.get_weights()])
    assert describe_value(perceptual) != before
    assert describe_value(perceptual, names) == own


@pytest.mark.parametrize("place", [0, 1, 500, 999])
def test_arrays_are_digested_in_pieces(place, monkeypatch):
    monkeypatch.setattr(digests, "_PIECE", 1000)
    rows = np.random.default_rng(0).normal(size=(1000, 5))
    before = describe_array(rows)
    rows[place, 2] += 1e-9
    assert describe_array(rows) != before
    monkeypatch.setattr(digests, "_WHOLE", 1 << 14)  # rows from all over it
    monkeypatch.setattr(digests, "_SAMPLES", 3)
    before = describe_array(rows)
    rows[place] += 1
    assert (describe_array(rows) == before) is (place in (1, 500))


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (3, 0), (2, 3)])
@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "uint8", "complex64", "<U3"])
def test_arrays_of_all_kinds(shape, dtype):
    array = np.zeros(shape, dtype)
    text = describe_array(array)
    assert text == describe_array(array.copy())
    assert text.startswith(f"{array.dtype}[{','.join(map(str, shape))}] <#")


def test_the_work_can_be_ended():
    stop = Event()
    stop.set()
    assert describe_array(X, stop) != describe_array(X)


TOLD = """
import functools, optax
from tests.core.test_digests import EQUAL, UNEQUAL
from exburn.core.digests import describe_value
for one, other in [*EQUAL.values(), *UNEQUAL.values()]:
    print(describe_value(one), describe_value(other))
"""


def test_other_processes_have_the_same_texts():
    told = set()
    for seed in "12":
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()}
        command = [sys.executable, "-c", TOLD]
        told.add(subprocess.check_output(command, env=environment, text=True))
    assert len(told) == 1


@pytest.mark.parametrize("name", ["relu", "linear"])
def test_what_guards_a_function_of_exburn_is_no_part_of_it(name):
    """A checkpoint is not refused because errors are shown in another way."""
    guarded = getattr(exburn.activations, name)
    bare = inspect.unwrap(guarded)
    assert guarded is not bare
    assert describe_value(guarded) == describe_value(bare)
    assert describe_value(functools.wraps(guarded)(lambda x: x)) != describe_value(bare)
