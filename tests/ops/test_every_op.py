"""Every op of Keras is there, with its arguments, and has cases in these tests."""

import inspect

import numpy as np
import pytest
from tests.golden import keras
from tests.ops.cases import I8
from tests.ops.check import every_case, find

from exburn import ops

# Tried by tests of their own: they take functions, make no comparable numbers, or, as
# sparsemax of Keras 3.15.1 on rows, are wrong there.
ELSEWHERE = {
    *("associative_scan", "cond", "custom_gradient", "eig", "fori_loop", "jvp"),
    *("image.elastic_transform", "map", "scan", "sparsemax", "switch", "vectorize"),
    *("vectorized_map", "while_loop"),
}


def public(namespace):
    return {
        name: value
        for name in dir(namespace)
        if not name.startswith("_") and callable(value := getattr(namespace, name))
    }


def describe_keras():
    """The ops of Keras, each with its arguments, and those whose default is told."""
    described = {}
    named = public(keras.ops)
    images = {f"image.{name}": op for name, op in public(keras.ops.image).items()}
    for name, op in (named | images).items():
        parameters = inspect.signature(op).parameters.values()
        plain = [p for p in parameters if p.kind is not p.VAR_KEYWORD]
        described[name] = [
            (p.name, [] if p.default is p.empty else [_told(p.default)]) for p in plain
        ]
    return described


def _told(default):
    simple = isinstance(default, str | bool | int | float) or default is None
    return default if simple else str(default)


def test_every_op_of_keras_is_here_with_its_arguments(golden):
    for name, wanted in golden(describe_keras).items():
        got = inspect.signature(find(ops, name)).parameters
        assert list(got)[: len(wanted)] == [n for n, _ in wanted], name
        for argument, default in wanted:
            mine = got[argument].default
            if not default:
                assert mine is inspect.Parameter.empty, (name, argument)
                continue
            allowed = (default[0], None if default[0] is False else default[0])
            assert mine in allowed or str(mine) == default[0], (name, argument)


@pytest.mark.parametrize("part", ["numpy", "nn", "linalg", "image"])
def test_parts_hold_what_keras_parts_hold(part, golden):
    theirs = golden(lambda: sorted(public(getattr(keras.ops, part))))
    assert set(theirs) - set(dir(getattr(ops, part))) == set()


def test_every_op_has_a_case(golden):
    theirs = golden(lambda: sorted(describe_keras()))
    assert set(theirs) - set(every_case()) - ELSEWHERE == set()


def test_products_of_int8_are_exact():
    """On a GPU, too, where Keras' are twice as large (XLA, jax 0.11)."""
    wanted = I8.astype(int) @ I8.T.astype(int)
    np.testing.assert_array_equal(ops.matmul(I8, I8.T), wanted)
    np.testing.assert_array_equal(ops.einsum("ij,kj->ik", I8, I8), wanted)
