"""Tests of ``exburn.optimizers.arguments``."""

import inspect

import pytest
from tests.golden import keras

from exburn import optimizers
from exburn.errors import ArgumentError, DTypeError, SignatureError, UnknownNameError
from exburn.optimizers import SGD, Adam, AdamW, LossScaleOptimizer


def plain(rate=1.0, **options):
    return SGD(rate, momentum=0.0, **options)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"learning_rate": -0.1}, ArgumentError, "learning_rate"),
        ({"learning_rate": float("nan")}, ArgumentError, "nan"),
        ({"learning_rate": float("inf")}, ArgumentError, "inf"),
        ({"learning_rate": True}, ArgumentError, "True"),
        ({"learning_rate": None}, ArgumentError, "None"),
        ({"learning_rate": ("cosin", 0.1)}, UnknownNameError, "cosine"),
        ({"beta_1": 1.0}, ArgumentError, "beta_1"),
        ({"epsilon": -1e-8}, ArgumentError, "epsilon"),
        ({"clipnorm": 0.0}, ArgumentError, "clipnorm"),
        ({"clipnorm": 1.0, "clipvalue": 1.0}, ArgumentError, "only one kind"),
        ({"weight_decay": -0.1}, ArgumentError, "weight_decay"),
        ({"ema_momentum": 1.5}, ArgumentError, "ema_momentum"),
        ({"ema_overwrite_frequency": 0}, ArgumentError, "ema_overwrite"),
        ({"gradient_accumulation_steps": 1}, ArgumentError, "≥ 2"),
        ({"loss_scale_factor": 0.0}, ArgumentError, "loss_scale_factor"),
        ({"lr": 0.1}, ArgumentError, "Use learning_rate"),
        ({"clip_norm": 0.1}, SignatureError, "Did you mean 'clipnorm'"),
    ],
)
def test_bad_options_are_refused(options, error, text):
    with pytest.raises(error, match=text) as caught:
        Adam(**options)
    assert isinstance(caught.value, ValueError | TypeError)


@pytest.mark.parametrize("argument", ["clipnorm", "lr"])
@pytest.mark.parametrize(
    "make",
    [
        optimizers.LBFGS,
        lambda **options: LossScaleOptimizer(plain(), **options),
        lambda **options: optimizers.MultiOptimizer(lambda _: plain(), **options),
        type("Closed", (SGD,), {"__init__": lambda self, rate=0.1: None}),
    ],
    ids=["LBFGS", "LossScaleOptimizer", "MultiOptimizer", "a user's"],
)
def test_options_that_an_optimizer_lacks_are_refused(make, argument):
    with pytest.raises((ArgumentError, UnknownNameError), match=repr(argument)):
        make(**{argument: 1.0})


def test_other_bad_values_are_refused():
    for make in (
        lambda: SGD(momentum=1.5),
        lambda: optimizers.Lion(beta_1=0.0),
        lambda: AdamW(weight_decay=None),  # type: ignore[arg-type]
        lambda: optimizers.Ftrl(learning_rate_power=0.5),
        lambda: optimizers.Ftrl(0.0),
        lambda: LossScaleOptimizer(plain(), initial_scale=0.0),
    ):
        with pytest.raises(ArgumentError):
            make()
    with pytest.raises(DTypeError, match="inner_optimizer"):
        LossScaleOptimizer("adam")  # type: ignore[arg-type]


def test_signatures_show_every_option():
    for name in ("SGD", "Adam", "AdamW", "Muon", "Ftrl"):
        ours = inspect.signature(getattr(optimizers, name)).parameters
        theirs = inspect.signature(getattr(keras.optimizers, name)).parameters
        assert set(theirs) - {"kwargs"} <= set(ours)
