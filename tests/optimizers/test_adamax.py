"""Tests of ``exburn.optimizers.adamax``."""

import pytest
from tests.optimizers.fifty_steps import (
    check_epsilon_is_where_keras_has_it,
    check_fifty_steps,
)

SAME = [
    ("Adamax", {}),
    ("Adamax", {"learning_rate": 0.1, "beta_1": 0.5, "beta_2": 0.9, "epsilon": 1e-3}),
]


@pytest.mark.parametrize(("name", "options"), SAME, ids=lambda v: str(v)[:60])
def test_fifty_steps(name, options, trajectories):
    check_fifty_steps(name, options, trajectories)


@pytest.mark.parametrize(
    "name",
    [
        "Adamax",
    ],
)
def test_epsilon_is_where_keras_has_it(name, trajectories, monkeypatch):
    check_epsilon_is_where_keras_has_it(name, trajectories, monkeypatch)
