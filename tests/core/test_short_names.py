"""Tests of ``exburn.core.short_names``."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from exburn.core.short_names import ShortNames

FAMILIES = {
    "a number within": [f"expert_number_{i:02d}_of_the_mixture" for i in range(50)],
    "a number at the end": [f"some_long_layer_name_{i}" for i in range(50)],
    "blocks": [
        f"conv{a}_block{b}_{c}_conv" for a in "123" for b in "123" for c in "12"
    ],
    "paths": [f"encoder/layer_{i}/attention/query" for i in range(20)],
    "no words": [f"{i:02d}abcdefghijklmnopqrstuvwxyz" for i in range(20)],
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("width", [14, 18])
def test_names_of_a_family_stay_apart(family, width):
    names = FAMILIES[family]
    short = ShortNames(names)
    cut = [short.cut(name, width) for name in names]
    assert len(set(cut)) == len(names)
    assert all(cell_len(text) <= width for text in cut)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(max_size=40), min_size=1, max_size=5), st.integers(0, 50))
def test_any_name_fits_any_width(names, width):
    short = ShortNames(names)
    for name in names:
        text = short.cut(name, width)
        assert cell_len(text) <= width
        assert text == name or cell_len(name) > width or len(name) > width
