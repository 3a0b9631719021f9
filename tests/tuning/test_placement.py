"""Lanes over several devices."""

import numpy as np
import pytest
from tests.distribution.devices import on_devices
from tests.tuning.models import X, Y, make_model, read_data

import exburn
from exburn.errors import LayoutError
from exburn.tuning import sweep
from exburn.tuning.groups import Group
from exburn.tuning.hyperparameters import find
from exburn.tuning.placement import placement_of
from exburn.tuning.variants import make_variants

TALK = "all-reduce", "all-gather", "collective-permute", "all-to-all"


def program_text(own_order):
    """The program that trains eight lanes on all devices."""
    model, trials = make_model(), [{"seed": seed} for seed in range(8)]
    data = read_data(model)
    places = {"seed": find(model, "seed")}
    (variant, *_) = make_variants(model, data, places, trials, 1, placement_of("all"))
    group = Group(variant, range(8), trials, own_order=own_order)
    program = group.programs(group.feed).train
    totals = group.totals("train", [False] * 8)
    chunk = next(iter(group.feed.epoch(0)))
    args = group.state.replace(metrics=None), totals, *chunk.arguments
    args, _ = variant.placement.bind(args, 2)
    return program._call.lower(*args).compile().as_text()


@on_devices
@pytest.mark.parametrize("own_order", [True, False])
def test_devices_have_nothing_to_tell_each_other_in_a_step(own_order):
    text = program_text(own_order)
    assert not [word for word in TALK if word in text]


@on_devices
def test_lanes_on_devices_are_those_of_one():
    fit = {"epochs": 2, "batch_size": 8, "validation_split": 0.25, "verbose": 0}
    fit |= {"over": {"seed": range(5)}, "halving": exburn.Halving(eta=2)}
    here = sweep(make_model(), X, Y, **fit)
    there = sweep(make_model(), X, Y, mesh=4, **fit)
    for one, two in zip(here.records, there.records, strict=True):
        assert (one.status, one.epochs) == (two.status, two.epochs)
        for name, values in one.history.items():
            np.testing.assert_allclose(two.history[name], values, rtol=1e-5)


@pytest.mark.parametrize("mesh", [0, 1000, True, [], "none", ["gpu"]])
def test_devices_that_are_not_there_are_refused(mesh):
    with pytest.raises(LayoutError, match="mesh"):
        placement_of(mesh)


def test_one_device_is_no_placement_of_its_own():
    assert placement_of(None) is None and placement_of(1) is None


@on_devices
def test_a_model_that_a_mesh_divides_is_refused():
    model = make_model(mesh="data")
    with pytest.raises(LayoutError, match="compiled for a mesh"):
        sweep(model, X, Y, over={"seed": [1]})
