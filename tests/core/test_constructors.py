"""Constructors that pass arguments on, or have other defaults."""

import inspect

from exburn.core.constructors import arguments_for, with_default


def area(width, height=1, *rest, **more):
    return width, height


class Box:
    def __init__(self, width, depth=2):
        self.width, self.depth = width, depth


def test_arguments_of_the_same_names_are_passed_on():
    def volume(width, height, depth, **options):
        return arguments_for(area, locals()), arguments_for(Box, locals())

    assert volume(2, 3, 4, rest=5) == (
        {"width": 2, "height": 3},
        {"width": 2, "depth": 4},
    )


def test_another_default_is_seen_by_callers_and_in_the_signature():
    power = 3

    def scaled(x, factor=2):
        """Closes over a name."""
        return factor * x**power

    other = with_default(scaled, "factor", 10)
    assert (other(1), scaled(1)) == (10, 2)
    assert inspect.signature(other).parameters["factor"].default == 10
    assert other.__doc__ == scaled.__doc__ and other.__name__ == "scaled"


def test_defaults_by_name_stay_or_are_the_other():
    def scaled(x, factor=2, *, shift=1, power=1):
        return factor * x**power + shift

    assert with_default(scaled, "factor", 10)(1) == 11
    assert with_default(scaled, "shift", 5)(1) == 7
