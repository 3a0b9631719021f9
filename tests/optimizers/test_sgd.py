"""Tests of ``exburn.optimizers.sgd``."""

import pytest
from tests.golden import keras

from exburn import optimizers

SAME = [
    ("SGD", {}),
    ("SGD", {"nesterov": True}),
    ("SGD", {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"clipnorm": 0.5}),
    ("SGD", {"clipvalue": 0.1}),
    ("SGD", {"momentum": 0.9, "global_clipnorm": 1.0}),
    ("SGD", {"momentum": 0.9, "loss_scale_factor": 8.0}),
    ("SGD", {"momentum": 0.9, "gradient_accumulation_steps": 5}),
]


@pytest.mark.parametrize("nesterov", [False, True])
def test_velocities_keep_the_rates_they_had(nesterov, trajectories):
    def make(library):
        schedule = library.schedules.ExponentialDecay(0.5, 5, 0.5, staircase=True)
        return library.SGD(schedule, momentum=0.9, nesterov=nesterov)

    theirs = trajectories.keras(lambda: make(keras.optimizers))
    trajectories.assert_close(trajectories.ours(make(optimizers)), theirs)
