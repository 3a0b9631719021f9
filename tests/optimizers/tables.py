"""Tests of the tables that the files of optimizers state."""

from tests.optimizers.fifty_steps import (
    check_epsilon_is_where_keras_has_it,
    check_fifty_steps,
)
from tests.tables import table


@table("SAME", "name", "options", ids=lambda i, row: f"{row[0]}-{str(row[1])[:60]}")
def test_fifty_steps(name, options, trajectories):
    check_fifty_steps(name, options, trajectories)


@table("EPSILON", "name")
def test_epsilon_is_where_keras_has_it(name, trajectories, monkeypatch):
    check_epsilon_is_where_keras_has_it(name, trajectories, monkeypatch)
