"""Tests of the tables that the files of losses state."""

from tests.losses.padded_rows import (
    check_config_round_trip,
    check_padded_rows_are_absent,
)
from tests.losses.reference import (
    check_reductions_with_weights,
    check_value_and_gradient,
)
from tests.tables import table

CASE = ("name", "options", "y_true", "y_pred")


def name(number, row):
    return f"{row[0].name}-{number}"


@table("LOSSES", "loss", "y_true", "y_pred", ids=name)
def test_padded_rows_are_absent(loss, y_true, y_pred):
    check_padded_rows_are_absent(loss, y_true, y_pred)


@table("LOSSES", "loss", "y_true", "y_pred", ids=name)
def test_config_round_trip(loss, y_true, y_pred):
    check_config_round_trip(loss, y_true, y_pred)


@table("CASES", *CASE, ids=lambda i, row: f"{row[0]}-{i}")
def test_value_and_gradient(name, options, y_true, y_pred):
    check_value_and_gradient(name, options, y_true, y_pred)


def without_masks(cases):
    """Those that do not mask by themselves: see test_behind_masks."""
    return [c for c in cases if "ignore_class" not in c[1] and c[0] != "Circle"]


@table("CASES", *CASE, rows=without_masks)
def test_reductions_with_weights(name, options, y_true, y_pred):
    check_reductions_with_weights(name, options, y_true, y_pred)
