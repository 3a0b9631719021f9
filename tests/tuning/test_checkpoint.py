"""A sweep that is killed goes on from its folder, to the same bits."""

import numpy as np
import pytest
from tests.tuning.models import X, Y, make_model

import exburn
from exburn.errors import ArgumentError, CheckpointError
from exburn.tuning import PBT, Halving, SweepCallback, sweep
from exburn.tuning import checkpoint as module

FIT = {"epochs": 4, "batch_size": 8, "validation_split": 0.25, "verbose": 0}


class Kill(SweepCallback):
    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_end(self, epoch):
        if epoch == self.epoch:
            raise KeyboardInterrupt


def same_bits(one, two):
    told = [[repr(r.get_config()) for r in x.records] for x in (one, two)]
    assert told[0] == told[1]
    for number in range(len(one.records)):
        pairs = (result._build(number).get_weights() for result in (one, two))
        for a, b in zip(*pairs, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.longest_cases("PBT")
@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        {
            "over": {"seed": [0, 1], "learning_rate": [0.01, 1e38]},
            "halving": Halving(2),
        },
        {"over": {"learning_rate": exburn.uniform(0.001, 0.1, 4)}, "scheduler": PBT()},
    ],
    ids=["halving", "PBT"],
)
def test_a_killed_sweep_goes_on_to_the_same_bits(options, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SECONDS", 0.0)
    whole = sweep(make_model(), X, Y, **FIT, **options)
    again = {**FIT, **options, "checkpoint": tmp_path / "sweep"}
    with pytest.raises(KeyboardInterrupt):
        sweep(make_model(), X, Y, **again, callbacks=Kill(2))
    same_bits(sweep(make_model(), X, Y, **again), whole)
    same_bits(sweep(make_model(), X, Y, **again), whole)  # there is nothing left to do
    assert len(list((tmp_path / "sweep").iterdir())) == 2

    with pytest.raises(CheckpointError, match="another sweep"):
        sweep(make_model(), X, Y, **{**again, "epochs": 8})
    with pytest.raises(CheckpointError, match="weights"):
        sweep(make_model(seed=1), X, Y, **again)
    (arrays,) = (tmp_path / "sweep").glob("*.npz")
    arrays.write_bytes(arrays.read_bytes()[:-1] + b"!")
    with pytest.raises(CheckpointError, match="byte for byte"):
        sweep(make_model(), X, Y, **again)


def test_what_cannot_be_taken_up_is_refused(tmp_path):
    class Study:
        def ask(self, space, n):
            return []

        def tell(self, records):
            pass

    options = {"over": {"seed": [1]}, "checkpoint": tmp_path}
    with pytest.raises(ArgumentError, match="known before"):
        sweep(make_model(), X, Y, sampler=Study(), **options)
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match="no folder"):
        sweep(make_model(), X, Y, **{**options, "checkpoint": tmp_path / "file"})
