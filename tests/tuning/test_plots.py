"""Drawings of sweeps: what is on them, with lanes that diverge or lack a value."""

import numpy as np
import pytest

from exburn.errors import UnknownNameError
from exburn.tuning import plots
from exburn.tuning.records import LaneRecord
from exburn.visualization.figures import new_figure

NAN = float("nan")


def lane(trial, losses, status="finished"):
    score = NAN if status == "nan" else losses[-1]
    return LaneRecord(trial, {"loss": losses}, len(losses), status, None, score)


LANES = [
    lane({"rate": 1e-3, "act": "relu"}, [1.0, 0.9, 0.8]),
    lane({"rate": 1e-2, "act": "tanh"}, [1.0, 0.5, 0.2]),
    lane({"rate": 1e-1}, [1.0, NAN], "nan"),
    lane({"rate": 1e0, "act": "relu"}, [1.0]),
    lane({"rate": 1e0, "act": "tanh"}, [1.0, 0.9, 1e6]),
    lane({"rate": 1e-2, "act": "relu"}, [1.0, 0.7, 0.4]),
]


def axes():
    return new_figure("plot", 4, 3).add_subplot()


def test_curves_show_each_lane_and_the_best_of_all():
    drawn = axes()
    plots.draw_curves(drawn, LANES, "loss", "min")
    assert len(drawn.collections[0].get_paths()) == 6
    best = drawn.lines[0]
    np.testing.assert_array_equal(best.get_xydata(), [[1, 1.0], [2, 0.5], [3, 0.2]])
    assert drawn.get_ylim()[1] < 10  # a lane that diverges does not squash the others
    drawn.figure.canvas.draw()


def test_curves_coloured_by_a_path_have_a_scale():
    drawn = axes()
    plots.draw_curves(drawn, LANES, "loss", "min", color="act")
    bar = drawn.figure.axes[1]
    assert [label.get_text() for label in bar.get_yticklabels()] == ["relu", "tanh"]
    drawn.figure.canvas.draw()


def test_values_of_validated_epochs_stand_at_these_epochs():
    record = LaneRecord({}, {"val_loss": [3.0, 2.0]}, 4, "finished", None, 2.0)
    drawn = axes()
    plots.draw_curves(drawn, [record], "val_loss", "min")
    assert drawn.lines[0].get_xdata().tolist() == [2, 4]


def test_parallel_coordinates_have_an_axis_for_each_path_and_the_score():
    drawn = axes()
    plots.draw_parallel(drawn, LANES, "loss", "min")
    names = [label.get_text() for label in drawn.get_xticklabels()]
    assert names == ["rate", "act", "loss"]
    at = [(*text.get_position(), text.get_text()) for text in drawn.texts]
    marks = {text: height for place, height, text in at if place < 1.5}
    # Rates over three powers of ten stand evenly.
    places = [marks[name] for name in ("0.001", "0.01", "0.1", "1")]
    np.testing.assert_allclose(places, [0, 1 / 3, 2 / 3, 1], atol=1e-9)
    assert {"relu", "tanh"} <= set(marks)
    drawn.figure.canvas.draw()


def test_lanes_of_one_value_and_of_no_score():
    same = [lane({"rate": 0.1}, [NAN], "nan"), lane({"rate": 0.1}, [NAN], "nan")]
    for draw in (plots.draw_curves, plots.draw_parallel):
        drawn = axes()
        draw(drawn, same, "loss", "min")
        drawn.figure.canvas.draw()


def test_importance_has_the_largest_bar_on_top():
    drawn = axes()
    plots.draw_importance(drawn, {"rate": 0.75, "act": 0.25})
    tops = [label.get_text() for label in drawn.get_yticklabels()]
    assert tops == ["rate", "act"] and drawn.yaxis_inverted()
    assert [bar.get_width() for bar in drawn.patches] == [0.75, 0.25]


def test_names_that_are_unknown():
    with pytest.raises(
        UnknownNameError, match=r"(?s)metric 'los'.*Did you mean 'loss'"
    ):
        plots.draw_curves(axes(), LANES, "los", "min")
    with pytest.raises(UnknownNameError, match=r"(?s)path 'rat'.*Did you mean 'rate'"):
        plots.draw_curves(axes(), LANES, "loss", "min", color="rat")
