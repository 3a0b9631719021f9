"""Tests of ``exburn.core.methods``."""

import contextlib
import inspect
import typing

import pytest

import exburn
from exburn.core.methods import with_methods


def double(self: "Number", *, plus: int = 0) -> int:
    return 2 * self.value + plus


@contextlib.contextmanager
def raised(self: "Number") -> typing.Iterator[int]:
    yield self.value + 1


@with_methods
class Number:
    value = 4
    double, raised = double, raised


def test_functions_are_methods_without_a_type_of_self():
    assert Number().double(plus=1) == 9
    with Number().raised() as value:
        assert value == 5
    assert str(inspect.signature(Number.double)) == "(self, *, plus: int = 0) -> int"
    for method in (Number.double, Number.raised):
        assert "self" not in typing.get_type_hints(method)


@pytest.mark.parametrize(
    "cls", [exburn.Model, exburn.layers.Layer, exburn.optimizers.Optimizer]
)
def test_the_types_of_public_methods_are_known_when_they_run(cls):
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        if not name.startswith("_") and method.__module__.startswith("exburn."):
            typing.get_type_hints(method)
