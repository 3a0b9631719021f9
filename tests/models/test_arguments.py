"""What ``fit`` and ``evaluate`` are called with: numbers of steps, and places."""

import numpy as np
import pytest
from tests.training.batches import X, Y
from tests.training.iterators import Restarting, classifier
from tests.training.sequences import batches, sequence_model

import exburn
from exburn import layers
from exburn.data import PyDataset, StreamDataset
from exburn.errors import ArgumentError


def test_more_steps_than_arrays_have_batches_are_told():
    model = exburn.Sequential([exburn.Input((3,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((10, 3), "float32"), np.ones((10, 1), "float32")
    with pytest.warns(UserWarning, match="the arrays ended after 3 of 5 steps"):
        model.evaluate(x, y, batch_size=4, steps=5, verbose=0)
    with pytest.warns(UserWarning, match="the arrays ended after 3 of 5 steps"):
        assert len(model.predict(x, batch_size=4, steps=5, verbose=0)) == 10
    with pytest.warns(UserWarning, match="the arrays ended after 2 of 9 steps"):
        model.fit(
            x,
            y,
            validation_data=(x, y),
            validation_batch_size=5,
            validation_steps=9,
            verbose=0,
        )


def test_what_never_ends_needs_steps(model):
    class Endless(PyDataset):
        def __getitem__(self, index):
            return X[:4], Y[:4]

    loader = Endless()
    with pytest.raises(ArgumentError, match="steps_per_epoch must be given: the Endl"):
        model.fit(loader, verbose=0)
    with pytest.raises(ArgumentError, match="validation_steps must be given"):
        model.fit(X, Y, validation_data=loader, verbose=0)
    for op in ("evaluate", "predict"):
        with pytest.raises(ArgumentError, match=f"{op}: steps must be given"):
            getattr(model, op)(loader, verbose=0)
    model.fit(loader, steps_per_epoch=2, verbose=0)


def test_nearly_endless_is_endless():
    stream = StreamDataset(lambda epoch: iter(Restarting()), batches=2**59)
    with pytest.raises(ArgumentError, match="never ends"):
        classifier().fit(stream, verbose=0)


@pytest.mark.parametrize("resident", ["yes", 2, True])
def test_resident_is_checked(resident):
    data = batches(4)[0] if resident is not True else (iter(batches(4)), None)
    with pytest.raises(ArgumentError, match="resident|loader"):
        sequence_model().fit(*data, verbose=0, resident=resident)
