"""Tests of ``exburn.insight.explanations.explanation``."""

import numpy as np
import pytest

from exburn.errors import ModelFormatError
from exburn.insight.explanations.explanation import Explanation


def explanation(**changes):
    rows = np.ones((2, 3), np.float32)
    parts = {
        "method": "saliency",
        "arrays": {"x": rows},
        "inputs": {"x": rows},
        "outputs": rows,
        "scores": rows[:, 0],
        "targets": np.zeros(2, np.int64),
        "scored": "softmax",
        "columns": ("a", "b", "c"),
    }
    return Explanation(**parts | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "magic"},
        {"scored": "tea"},
        {"columns": ("a",)},
        {"columns": (1, 2, 3)},
        {"layer": None},
        {"targets": np.zeros(2)},
        {"scores": np.zeros(3, np.float32)},
        {"arrays": {"x": np.ones((2, 3), bool)}},
        {"arrays": {"x": np.ones((2, 0), np.float32)}, "columns": ()},
        {"arrays": {}},
        {"gaps": np.ones((2, 3))},
        {"texts": {"y": [["a", "b", "c"]] * 2}},
        {"texts": {"x": [["a", "b", "c"]]}},
        {"texts": {"x": [["a", "b", 3]] * 2}},
    ],
)
def test_a_file_that_says_what_no_explanation_is_is_refused(changes, tmp_path):
    path = tmp_path / "found"
    explanation().save(path)
    assert Explanation.load(path).columns == ("a", "b", "c")
    explanation(**changes).save(path)
    with pytest.raises(ModelFormatError, match="no explanation"):
        Explanation.load(path)


def test_names_in_a_table_do_not_act_on_a_terminal():
    text = str(explanation(columns=("a\x1b[2J", "b", "c")))
    assert "\x1b" not in text and "[2J" in text


def test_grad_cam_says_where_no_place_speaks_for_the_target():
    heat = np.zeros((2, 4, 4), np.float32)
    heat[0] = 1
    found = explanation(
        method="gradcam",
        arrays={"x": heat},
        inputs={"x": np.ones((2, 8, 8, 1), np.float32)},
        columns=(),
        layer="conv",
    )
    assert "In 1 of 2 rows" in found.text() and found.plot().axes
