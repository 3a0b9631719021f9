"""Every op is there, gives what Keras' gives, and the same shapes on symbols."""

import inspect
import operator
import re
from pathlib import Path

import jax
import keras
import numpy as np
import pytest
from tests.namespaces.cases import BINARY, CASES, IMAGES, UNARY, X

from exburn import ops
from exburn.symbol import OPERATIONS, Symbol, spec_of

REFERENCE = Path("/work/shared/reference/keras_api_3.15.1.txt")
ALL = [(name, i) for name, cases in CASES.items() for i in range(len(cases))]
IDS = [f"{name}-{i}" for name, i in ALL]

# Tried by tests of their own: they take functions, or make no comparable numbers.
ELSEWHERE = {
    *("associative_scan", "cond", "custom_gradient", "eig", "fori_loop", "jvp"),
    *("image.elastic_transform", "map", "scan", "switch", "vectorize"),
    *("vectorized_map", "while_loop"),
}


def public(namespace):
    return {
        name: value
        for name in dir(namespace)
        if not name.startswith("_") and callable(value := getattr(namespace, name))
    }


PUBLIC = {
    **public(keras.ops),
    **{f"image.{name}": op for name, op in public(keras.ops.image).items()},
}


def found(namespace, name):
    return operator.attrgetter(name)(namespace)


def leaves(tree):
    return jax.tree.leaves(tree)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_op_of_keras_is_here_with_its_arguments(name):
    ours = inspect.signature(found(ops, name)).parameters
    theirs = inspect.signature(PUBLIC[name]).parameters
    named = [n for n, p in theirs.items() if p.kind is not p.VAR_KEYWORD]
    assert list(ours)[: len(named)] == named
    for n in named:
        wanted, got = theirs[n].default, ours[n].default
        assert got == wanted or (got is None and wanted is False), n


@pytest.mark.parametrize("part", ["numpy", "nn", "linalg", "image"])
def test_parts_hold_what_keras_parts_hold(part):
    missing = set(public(getattr(keras.ops, part))) - set(dir(getattr(ops, part)))
    assert missing == set()


def test_every_op_has_a_case():
    assert set(PUBLIC) - set(CASES) - ELSEWHERE == set()


def compare(got, wanted):
    got, wanted = leaves(got), leaves(wanted)
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        assert type(a) is type(b) or hasattr(a, "dtype")
        if hasattr(b, "dtype"):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
        else:
            assert a == b


@pytest.mark.parametrize(("name", "i"), ALL, ids=IDS)
@pytest.mark.filterwarnings("ignore:invalid value|overflow|divide by zero")
def test_values_are_those_of_keras(name, i):
    args, kwargs = CASES[name][i]
    compare(found(ops, name)(*args, **kwargs), PUBLIC[name](*args, **kwargs))
