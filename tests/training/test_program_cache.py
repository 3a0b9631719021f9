"""Programs that are kept for each variant of a model in training."""

import numpy as np

import exburn as keras
from exburn import layers
from exburn.models.session import require_trainer

X, Y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")


def test_programs_are_kept_for_a_few_variants():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(X, Y, verbose=0)
    preparer = require_trainer(model, "test").preparer
    cache, first = preparer.program_cache, preparer.programs
    assert preparer.programs is first
    for variant in "abcd":
        cache.variant = variant
        assert preparer.programs is not first
        assert preparer.programs.evaluate is not first.evaluate
    cache.variant = None
    assert preparer.programs is not first  # the oldest of five sets was dropped
    assert cache.unroll(True) >= 1


def test_programs_of_another_optimizer_share_the_others():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(X, Y, verbose=0)
    preparer = require_trainer(model, "test").preparer
    first = preparer.programs
    preparer.holder.optimizer.nesterov = True
    assert preparer.programs.train is not first.train
    assert preparer.programs.evaluate is first.evaluate
