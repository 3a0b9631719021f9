"""Tests of ``exburn.core.docstrings``."""

import inspect
import pydoc

import pytest

from exburn import layers, losses, ops, optimizers
from exburn.core.catalogue_class import CatalogueClass
from exburn.core.docstrings import complete_arguments, complete_docstring


class Area:
    """A width by a height.

    Args:
        width, height: Numbers,
            of metres.

    Shape:
        [] → []

    Raises:
        ValueError: One of them is negative.

    Example:
        >>> Area(2, 3)
    """

    def __init__(self, width, height):
        """Not read."""


Area.__module__ = "exburn.area"


class Other:
    """Args come from here, too.

    Args:
        colour: Its colour.
    """


Other.__module__ = "exburn.other"


def complete(doc, init, **own):
    own |= {"__doc__": doc, "__init__": init, "__module__": "exburn.volume"}
    return complete_docstring(type("Volume", (Area,), own)).__doc__


def test_arguments_are_in_the_order_of_the_constructor():
    def init(self, width, depth, height, **more): ...

    doc = """As `Area`, with a depth.

    Args:
        depth: A number.
        **more: Ignored.

    Raises:
        TypeError: One is no number.

    Source: Euclid, *Elements*, -300.
    """
    assert complete(doc, init) == inspect.cleandoc(
        """As `Area`, with a depth.

        Args:
            width: Numbers,
                of metres.
            depth: A number.
            height: Numbers,
                of metres.
            **more: Ignored.

        Shape:
            [] → []

        Raises:
            TypeError: One is no number.

        Source: Euclid, *Elements*, -300.
        """
    )


def test_a_docstring_of_one_line_takes_all_sections_but_the_example():
    def init(self, height): ...

    assert complete("A height.", init) == inspect.cleandoc(
        """A height.

        Args:
            height: Numbers,
                of metres.

        Shape:
            [] → []

        Raises:
            ValueError: One of them is negative.
        """
    )


def test_classes_beside_the_bases_may_tell_of_arguments():
    def init(self, colour): ...

    doc = complete("A colour.", init, _described_by=(Other,))
    assert "Args:\n    colour: Its colour.\n" in doc


@pytest.mark.parametrize("doc", [None, ""])
def test_without_a_docstring_there_is_nothing_to_complete(doc):
    assert complete(doc, lambda self, width: None) == doc


def test_classes_of_users_keep_their_text():
    class Mine(losses.MeanSquaredError):
        """Mine."""

    class Dense(layers.Dense):
        """Mine."""

    class Catalogued(CatalogueClass):
        """Mine."""

    assert {Mine.__doc__, Dense.__doc__, Catalogued.__doc__} == {"Mine."}


def test_help_shows_what_the_base_says():
    assert "clipnorm: Largest norm" in pydoc.render_doc(optimizers.Adam)
    assert "clipnorm: Largest norm" in inspect.getdoc(optimizers.Adam)


def test_functions_take_the_arguments_of_their_family():
    doc = """Moves it.

    Args:
        by: How far.

    Example:
        >>> move(1, 2)
        3
    """
    texts = {"x": "An array.", "by": "Not this one.", "other": "None."}
    assert complete_arguments(doc, ["x", "by"], texts) == inspect.cleandoc(
        """Moves it.

        Args:
            x: An array.
            by: How far.

        Example:
            >>> move(1, 2)
            3
        """
    )
    assert complete_arguments(None, ["x"], texts) is None
    assert "x: An array.\n" in inspect.getdoc(ops.sin)
