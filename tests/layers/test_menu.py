"""The menu of layers in the docstring of their module."""

import re

from exburn import layers


def test_the_docstring_lists_every_layer_once():
    names = re.findall(r"``(\w+)``", layers.__doc__.partition("\n\nKeras' second")[0])
    assert len(names) == len(set(names))
    own = {name for name in layers.__all__ if getattr(layers, name).__name__ == name}
    assert set(names) == own
