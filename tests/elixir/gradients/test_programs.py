"""The batch of a call, and the programs that compute on it."""

import numpy as np
import pytest
from tests.elixir.gradients.models import X, Y, model

import exburn
from exburn.elixir.gradients.programs import prepare_batch
from exburn.errors import ArgumentError, DataError, UnknownNameError


class Own(exburn.Model):
    def __init__(self):
        super().__init__()
        self.dense = exburn.layers.Dense(3)

    def call(self, x):
        return self.dense(x)

    def train_step(self, state, data):
        return {"loss": 0.0}, state


def test_a_batch_is_checked_and_the_model_is_built_for_it():
    made = exburn.Sequential([exburn.layers.Dense(3)])
    made.compile("sgd", "cross_entropy")
    trainer, (x, y, weight) = prepare_batch(made, (X, Y), "train_step", "autodiff")
    assert made.built and weight is None
    assert trainer is made._run.value.trainer
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y)


def test_what_is_refused():
    made = model()
    with pytest.raises(UnknownNameError, match="numerical_batch"):
        prepare_batch(made, (X, Y), "train_step", "symbolic")
    with pytest.raises(DataError, match="received 4 parts"):
        prepare_batch(made, (X, Y, Y, Y), "train_step", "autodiff")
    own = Own()
    own.compile("sgd", "mse")
    for op, method in (("compute_gradients", "autodiff"), ("train_step", "numerical")):
        with pytest.raises(ArgumentError, match="its gradients in its own train_step"):
            prepare_batch(own, (X, Y), op, method)
