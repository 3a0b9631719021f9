"""What public names say of themselves: arguments, errors, an example that runs."""

import sys
from pathlib import Path

import pytest

import exburn

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "project"))
try:
    import docstrings
finally:
    sys.path.remove(str(ROOT / "tests" / "project"))


class Named:
    """Stands for a public name."""

    def __init__(self, value):
        self.value, self.path = value, value.__name__


def test_every_public_name_has_arguments_errors_and_an_example():
    names = docstrings.public_names()
    assert len(names) > 1000
    lacking = {name.path: list(docstrings.lacks(name)) for name in names}
    assert {path: found for path, found in lacking.items() if found} == {}


@pytest.mark.parametrize("cls", [exburn.Model, exburn.Sequential, exburn.Layer])
def test_methods_of_models_and_layers_tell_of_their_arguments(cls):
    assert docstrings.untold(cls) == {}


def test_what_is_missing_or_stale_is_seen():
    def halve(x, rate, *, seed=None):
        """Half of it.

        Args:
            x, rate: Numbers.
            noise: Gone.

        Example:
            >>> halve(2.0)
            1.0
        """
        return x / 2

    assert list(docstrings.lacks(Named(halve))) == [
        "Args: seed",
        "Args of no such parameter: noise",
    ]
    halve.__doc__ = "Half of it."
    assert list(docstrings.lacks(Named(halve))) == ["Args: rate, seed, x", "Example"]
    halve.__doc__ = None
    assert list(docstrings.lacks(Named(halve))) == ["no docstring"]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def f(x):\n    raise ArgumentError('f', 'no')", True),
        ("def f(x):\n    check_count('f', 'x', x)", True),
        ("def f(x):\n    raise NotImplementedError", False),
        ("class A:\n    def build(self, x):\n        raise ShapeError('A', '')", True),
        ("class A:\n    def other(self, x):\n        raise ShapeError('A', '')", False),
    ],
)
def test_what_raises_is_read_from_the_code(code, found):
    import ast

    assert docstrings.raises(ast.parse(code).body[0]) is found
