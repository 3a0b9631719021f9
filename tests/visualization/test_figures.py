"""Figures of matplotlib's: no global state, bars from the top, whole epochs."""

import sys

import numpy as np
import pytest

from exburn.errors import MissingDependencyError
from exburn.visualization import figures


def test_a_figure_is_known_to_no_window():
    figure, axes = figures.new_axes("plot", 4, 3)
    pyplot = pytest.importorskip("matplotlib.pyplot")
    assert not any(pyplot.figure(number) is figure for number in pyplot.get_fignums())
    assert tuple(figure.get_size_inches()) == (4, 3) and axes.figure is figure


def test_bars_stand_end_to_end_the_first_on_top():
    _, axes = figures.new_axes("plot")
    parts = {"forward": [1.0, 2.0], "backward": [3.0, 4.0]}
    bars = figures.draw_bars(axes, ["a", "b"], parts)
    assert [bar.get_x() for bar in bars] == [1.0, 2.0]
    assert axes.yaxis_inverted() and axes.get_legend_handles_labels()[1] == [*parts]


def test_epochs_are_whole_numbers():
    figure, axes = figures.new_axes("plot")
    axes.plot([1, 2, 3], [0.0, 1.0, 2.0])
    figures.count_epochs(axes, "plot")
    figure.canvas.draw()
    np.testing.assert_array_equal(axes.get_xticks() % 1, 0)
    assert axes.get_xlabel() == "epoch"


def test_without_matplotlib_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match="Sketch.plot.*drawing needs"):
        figures.new_figure("Sketch.plot", 4, 3)
