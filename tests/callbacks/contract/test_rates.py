"""Tests of ``exburn.callbacks.contract.rates``."""

import pytest

from exburn.callbacks.contract.rates import current_rate


def test_the_rate_rises_linearly_during_a_warm_up(model):
    optimizer = model.optimizer
    optimizer.learning_rate = 0.4
    optimizer.set_hyperparameters(warmup_from=0.1, warmup_to=0.5, warmup_steps=4)
    rates = []
    for optimizer.iterations in range(6):
        rates.append(current_rate(optimizer))
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])


def test_the_scale_of_a_plateau_is_a_factor(model):
    model.optimizer.learning_rate = 0.4
    model.optimizer.set_hyperparameters(scale=0.25)
    assert current_rate(model.optimizer) == pytest.approx(0.1)
