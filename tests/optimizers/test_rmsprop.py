"""Tests of ``exburn.optimizers.rmsprop``."""

import pytest
from tests.optimizers.fifty_steps import (
    check_epsilon_is_where_keras_has_it,
    check_fifty_steps,
)

SAME = [
    ("RMSprop", {}),
    ("RMSprop", {"momentum": 0.9, "epsilon": 0.1, "weight_decay": 0.1}),
    ("RMSprop", {"centered": True}),
    ("RMSprop", {"centered": True, "epsilon": 1e-2, "momentum": 0.9, "rho": 0.7}),
]


@pytest.mark.parametrize(("name", "options"), SAME, ids=lambda v: str(v)[:60])
def test_fifty_steps(name, options, trajectories):
    check_fifty_steps(name, options, trajectories)


@pytest.mark.parametrize(
    "name",
    [
        "RMSprop",
    ],
)
def test_epsilon_is_where_keras_has_it(name, trajectories, monkeypatch):
    check_epsilon_is_where_keras_has_it(name, trajectories, monkeypatch)
