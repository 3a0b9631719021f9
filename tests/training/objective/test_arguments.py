"""What ``compile`` takes as losses, loss weights and metrics, looked at early."""

import numpy as np
import pytest

import exburn
from exburn.errors import ArgumentError, DTypeError, UnknownNameError
from exburn.training.objective.arguments import (
    as_list,
    check_metrics,
    check_scales,
    get_losses,
    loss_name,
)


def test_losses_are_made_in_any_container():
    made = get_losses({"a": "mse", "b": ["mae", None]})
    assert [type(made["a"]).__name__, type(made["b"][0]).__name__] == [
        "MeanSquaredError",
        "MeanAbsoluteError",
    ]
    assert made["b"][1] is None and get_losses(None) is None
    described = exburn.losses.serialize(exburn.losses.Huber(2.0))
    assert type(get_losses(described)).__name__ == "Huber"  # no container of losses
    with pytest.raises(UnknownNameError, match="mse"):
        get_losses(["mze"])


def test_a_loss_is_called_as_it_was_given():
    assert loss_name("mse") == "mse"
    assert loss_name("MeanSquaredError") == "mean_squared_error"
    assert loss_name(exburn.losses.MeanSquaredError(name="own")) == "own"


@pytest.mark.parametrize("spec", [None, "mae", ["mae", {"a": ["mse"]}], len])
def test_metrics_that_may_be(spec):
    check_metrics(spec)


@pytest.mark.parametrize(
    ("spec", "error"),
    [("acuracy", UnknownNameError), ([["mze"]], UnknownNameError), ([3], DTypeError)],
)
def test_metrics_that_may_not(spec, error):
    with pytest.raises(error):
        check_metrics(spec)


def test_loss_weights_are_finite_numbers():
    check_scales({"a": 1, "b": [np.float32(0.5), None], "c": np.ones(())})
    for bad in (np.nan, "1", [1, np.inf], {"a": [np.ones(2)]}):
        with pytest.raises(ArgumentError, match="loss_weights must be finite"):
            check_scales(bad)


def test_one_none_or_many():
    assert (as_list(None), as_list("a"), as_list(("a", "b"))) == ([], ["a"], ["a", "b"])
