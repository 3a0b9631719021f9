"""Sweeps over loaders and generators."""

import numpy as np
import pytest
from tests.tuning.models import X, Y, make_model

import exburn
from exburn.errors import DataError
from exburn.tuning import Halving, sweep

FIT = {"steps_per_epoch": 2, "verbose": 0}


class Loader:
    """Five batches, which can be read any number of times."""

    def __iter__(self):
        return ((X[i : i + 8], Y[i : i + 8]) for i in range(0, 40, 8))

    def __len__(self):
        return 5


def batches(count):
    """A generator of so many batches."""
    return ((X[8 * i :][:8], Y[8 * i :][:8]) for i in range(count))


@pytest.mark.parametrize("count", [4, 5])
def test_a_generator_needs_no_more_batches_than_fit(count):
    result = sweep(make_model(), batches(count), over={"seed": [1, 2]}, epochs=2, **FIT)
    wanted = make_model(2).fit(batches(4), epochs=2, **FIT).history["loss"]
    np.testing.assert_allclose(result.records[1].history["loss"], wanted, rtol=1e-5)


def test_a_generator_that_ends_ends_the_sweep():
    with pytest.warns(UserWarning, match="ended after 1 of 2 steps of epoch 2"):
        result = sweep(make_model(), batches(3), over={"seed": [1]}, epochs=4, **FIT)
    assert [(r.epochs, r.status) for r in result.records] == [(2, "stopped")]


def test_several_programs_cannot_read_one_generator():
    over = {"hidden/activation": ["relu", "tanh"]}
    with pytest.raises(DataError, match="gives its batches once"):
        sweep(make_model(), batches(9), over=over, **FIT)


def test_each_group_reads_a_loader_as_fit_would():
    """Also after a rung, and where an epoch goes on behind the last one's steps."""
    over = {"seed": [1, 2], "hidden/activation": ["relu", "tanh"]}
    halving = Halving(eta=2, min_epochs=1)
    model = make_model()
    result = sweep(model, Loader(), over=over, epochs=2, halving=halving, **FIT)
    for record in result.records:
        alone = make_model(record.trial["seed"])
        if record.trial["hidden/activation"] == "tanh":
            config = alone.get_layer("hidden").get_config() | {"activation": "tanh"}
            hidden = exburn.layers.Dense.from_config(config)
            alone = exburn.Sequential(
                [
                    exburn.Input((5,)),
                    *(hidden if one.name == "hidden" else one for one in alone.layers),
                ]
            )
            seed = record.trial["seed"]
            alone.compile(exburn.optimizers.Adam(0.01), "cross_entropy", seed=seed)
        wanted = alone.fit(Loader(), epochs=record.epochs, **FIT).history["loss"]
        np.testing.assert_allclose(record.history["loss"], wanted, rtol=1e-4)
