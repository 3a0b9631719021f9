"""Tests of ``exburn.optimizers.adam``."""

import pytest
from tests.optimizers.fifty_steps import (
    check_epsilon_is_where_keras_has_it,
    check_fifty_steps,
)

SAME = [
    ("Adam", {}),
    ("Adam", {"learning_rate": 0.05, "beta_1": 0.8, "beta_2": 0.99, "epsilon": 0.1}),
    ("Adam", {"amsgrad": True}),
    ("Adam", {"weight_decay": 0.1, "clipnorm": 1.0}),
    ("AdamW", {}),
    ("AdamW", {"learning_rate": 0.1, "weight_decay": 0.5, "epsilon": 1e-2}),
    ("AdamW", {"amsgrad": True, "clipvalue": 0.1}),
]


@pytest.mark.parametrize(("name", "options"), SAME, ids=lambda v: str(v)[:60])
def test_fifty_steps(name, options, trajectories):
    check_fifty_steps(name, options, trajectories)


@pytest.mark.parametrize(
    "name",
    [
        "Adam",
        "AdamW",
    ],
)
def test_epsilon_is_where_keras_has_it(name, trajectories, monkeypatch):
    check_epsilon_is_where_keras_has_it(name, trajectories, monkeypatch)
