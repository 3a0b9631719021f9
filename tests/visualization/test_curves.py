"""Axes: every one has ticks, which are round numbers between its ends."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exburn.visualization.curves import Curve, Panel, PlotAxis, number_text
from exburn.visualization.svg import draw_panel

numbers = st.floats(-1e9, 1e9).map(lambda value: float(f"{value:.6g}"))


@example(0.0, 5e-324, 3, False)
@example(-1e308, 1e308, 3, False)
@given(numbers, numbers, st.integers(3, 6), st.booleans())
def test_every_axis_has_ticks(one, other, most, whole):
    axis = PlotAxis([one, other])
    if axis.high - axis.low < 1e-5 * max(abs(one), abs(other)):
        return  # no picture tells them apart
    assert axis.place(axis.low) == 0 and axis.place(axis.high) == 1
    ticks = axis.ticks(most, whole=whole)
    single = abs(one - other) < 1e-290 and whole
    assert (1 if single else 2) <= len(ticks) <= 2 * most + 1
    slack = 1e-6 * (axis.high - axis.low)
    assert axis.low - slack <= ticks[0] and ticks[-1] <= axis.high + slack
    assert ticks == sorted(set(ticks))


@pytest.mark.parametrize(
    ("values", "whole", "ticks"),
    [
        ([1, 1], True, [1]),
        ([1, 2], True, [1, 2]),
        ([1, 100], True, [20, 40, 60, 80, 100]),
        ([0.25, 1], True, [0.4, 0.6, 0.8, 1.0]),  # within the first epoch
        ([0.51, 1.49], False, [0.6, 0.8, 1.0, 1.2, 1.4]),
        ([0.0301, 1.166], False, [0.2, 0.4, 0.6, 0.8, 1.0]),
        ([1e-6, 1e3], False, [1e-6, 1e-3, 1, 1e3]),
    ],
)
def test_ticks_are_round(values, whole, ticks):
    axis = PlotAxis(values, logarithmic=False if whole else None)
    found = axis.ticks(5 if whole else 4, whole=whole)
    assert found == pytest.approx(ticks)
    assert len({number_text(value) for value in found}) == len(found)


def test_a_long_title_is_whole_and_the_legend_below_it():
    name = "sparse_top_k_categorical_accuracy"
    points = [(1.0, 0.5), (2.0, 0.9)]
    curves = (Curve("training", points), Curve("validation", points))
    for title, line in ((name, 'y="227.0"'), ("loss", 'y="16.0"')):
        drawn = draw_panel(Panel(title, curves))
        assert f">{title}<" in drawn
        (legend,) = (p for p in drawn.split("<text") if ">validation</text>" in p)
        assert line in legend
    drawn = draw_panel(Panel("a" * 100, curves))
    assert "…" in drawn and "a" * 100 not in drawn
