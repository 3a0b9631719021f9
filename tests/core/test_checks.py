"""Arguments that are whole numbers, numbers, shares or names: one rule for each kind.

Each table has arguments of many classes. What Keras 3.15 takes of numbers in NumPy's or
JAX' form is taken, and 3.0 where it takes floats; text and truth values never are.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from exburn import (
    callbacks,
    initializers,
    layers,
    losses,
    metrics,
    optimizers,
    regularizers,
)
from exburn.core import checks
from exburn.errors import ArgumentError, CallbackError, ExBurnError
from exburn.optimizers import schedules

COUNTS: dict[str, Callable[[Any], Any]] = {
    "layers.Dense.units": layers.Dense,
    "layers.Conv2D.filters": lambda v: layers.Conv2D(v, 2),
    "layers.Conv2D.groups": lambda v: layers.Conv2D(3, 2, groups=v),
    "layers.Embedding.input_dim": lambda v: layers.Embedding(v, 2),
    "layers.Embedding.output_dim": lambda v: layers.Embedding(2, v),
    "layers.LSTM.units": layers.LSTM,
    "layers.MultiHeadAttention.num_heads": lambda v: layers.MultiHeadAttention(v, 2),
    "layers.MultiHeadAttention.key_dim": lambda v: layers.MultiHeadAttention(2, v),
    "layers.RepeatVector.n": layers.RepeatVector,
    "layers.GroupNormalization.groups": layers.GroupNormalization,
    "layers.Hashing.num_bins": layers.Hashing,
    "layers.CategoryEncoding.num_tokens": layers.CategoryEncoding,
    "schedules.CosineDecay.decay_steps": lambda v: schedules.CosineDecay(0.1, v),
    "schedules.ExponentialDecay.decay_steps": (
        lambda v: schedules.ExponentialDecay(0.1, v, 0.5)
    ),
    "optimizers.LBFGS.memory_size": lambda v: optimizers.LBFGS(memory_size=v),
    "optimizers.Adam.gradient_accumulation_steps": (
        lambda v: optimizers.Adam(gradient_accumulation_steps=v)
    ),
    "callbacks.EpochCheckpoint.epochs": callbacks.EpochCheckpoint,
    "callbacks.StochasticWeightAveraging.period": (
        lambda v: callbacks.StochasticWeightAveraging(0, every=v)
    ),
    "losses.SparseCategoricalCrossentropy.ignore_class": (
        lambda v: losses.SparseCategoricalCrossentropy(ignore_class=v)
    ),
    "metrics.TopKCategoricalAccuracy.k": lambda v: metrics.TopKCategoricalAccuracy(k=v),
    "metrics.MeanIoU.num_classes": metrics.MeanIoU,
    "metrics.R2Score.num_regressors": lambda v: metrics.R2Score(num_regressors=v),
}
#: Keras takes floats here, if they are whole or not.
STEPS = {
    "schedules.CosineDecay.decay_steps",
    "schedules.ExponentialDecay.decay_steps",
    "optimizers.Adam.gradient_accumulation_steps",
    "losses.SparseCategoricalCrossentropy.ignore_class",
}
NUMBERS: dict[str, Callable[[Any], Any]] = {
    "layers.Dropout.rate": layers.Dropout,
    "layers.GaussianNoise.stddev": layers.GaussianNoise,
    "layers.BatchNormalization.momentum": lambda v: layers.BatchNormalization(-1, v),
    "layers.LayerNormalization.epsilon": lambda v: layers.LayerNormalization(-1, v),
    "layers.LSTM.dropout": lambda v: layers.LSTM(2, dropout=v),
    "layers.MixUp.alpha": layers.MixUp,
    "layers.RandomGrayscale.factor": layers.RandomGrayscale,
    "optimizers.Adam.learning_rate": optimizers.Adam,
    "optimizers.Adam.beta_1": lambda v: optimizers.Adam(beta_1=v),
    "optimizers.SGD.momentum": lambda v: optimizers.SGD(momentum=v),
    "optimizers.SGD.clipnorm": lambda v: optimizers.SGD(clipnorm=v),
    "schedules.CosineDecay.alpha": lambda v: schedules.CosineDecay(0.1, 5, v),
    "losses.CategoricalCrossentropy.label_smoothing": (
        lambda v: losses.CategoricalCrossentropy(label_smoothing=v)
    ),
    "losses.CategoricalGeneralizedCrossEntropy.q": (
        losses.CategoricalGeneralizedCrossEntropy
    ),
    "metrics.BinaryCrossentropy.label_smoothing": (
        lambda v: metrics.BinaryCrossentropy(label_smoothing=v)
    ),
    "regularizers.L2.l2": regularizers.L2,
}
CHOICES: dict[str, Callable[[Any], Any]] = {
    "layers.Conv2D.padding": lambda v: layers.Conv2D(2, 2, padding=v),
    "layers.MaxPooling2D.padding": lambda v: layers.MaxPooling2D(padding=v),
    "layers.UpSampling2D.interpolation": lambda v: layers.UpSampling2D(interpolation=v),
    "layers.Flatten.data_format": layers.Flatten,
    "initializers.VarianceScaling.mode": lambda v: initializers.VarianceScaling(mode=v),
}


def stored(name: str, made: Any) -> Any:
    return getattr(made, name.rpartition(".")[2])


@pytest.mark.parametrize("name", COUNTS)
def test_an_integer_comes_in_any_form_of_a_number(name):
    floats = (3.0, np.float32(3)) if name in STEPS else ()
    for value in (3, np.int64(3), np.array(3), jnp.array(3), *floats):
        kept = stored(name, COUNTS[name](value))
        assert kept == 3
        assert type(kept) is int, value


@pytest.mark.parametrize("name", COUNTS)
def test_what_is_no_integer_has_one_error(name):
    *_, op, argument = name.split(".")
    argument = "every" if name.startswith("callbacks") else argument
    error = CallbackError if name.startswith("callbacks") else ArgumentError
    floats = () if name in STEPS else (3.0, np.float32(3))
    for value in ("3", True, 2.5, *floats, [3], float("nan"), np.array([3])):
        with pytest.raises(ExBurnError, match=f"{argument} must be an integer") as info:
            COUNTS[name](value)
        assert type(info.value) is error, value


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_comes_in_any_form(name):
    for value in (0.5, np.float32(0.5), np.array(0.5), jnp.array(0.5)):
        assert float(stored(name, NUMBERS[name](value))) == 0.5


@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_no_number_has_one_error(name):
    argument = name.rpartition(".")[2]
    for value in ("0.5", True, [0.5], float("nan"), -1.0, 1j):
        with pytest.raises(ArgumentError, match=f"{argument} (must be a|<)"):
            NUMBERS[name](value)


@pytest.mark.parametrize("name", CHOICES)
def test_an_unknown_name_is_told_with_the_known_ones(name):
    argument = name.rpartition(".")[2]
    for value in ("other", 3, None if argument == "padding" else 3):
        with pytest.raises(ArgumentError, match=f"{argument} is one of .*, received"):
            CHOICES[name](value)


def test_bounds_are_part_of_the_message():
    for bounds, text in (
        ({}, "≥ 0"),
        ({"open_low": True}, "> 0"),
        ({"high": 1}, "from 0 to 1"),
        ({"high": 1, "open_high": True}, r"in \[0, 1\)"),
        ({"low": -np.inf}, "finite number"),
    ):
        with pytest.raises(ArgumentError, match=f"x must be a .*{text}"):
            checks.check_number("f", "x", np.inf, **bounds)
