"""Lanes of other widths in one program, beside models that are truly so narrow."""

import numpy as np
import pytest
from tests.tuning.models import X, Y

import exburn
from exburn import layers
from exburn.optimizers import SGD, Adafactor, AdamW
from exburn.tuning import sweep
from exburn.tuning.widths import Axis, Unsupported, Width, follow, narrow, widen

FIT = {"epochs": 2, "batch_size": 8, "validation_split": 0.25, "verbose": 0}
IMAGES = np.random.default_rng(0).normal(size=(24, 6, 6, 1)).astype(np.float32)


def dense(one=7, two=5, seed=4):
    stack = [
        layers.Dense(one, "sigmoid", name="one"),  # not zero where its units are masked
        layers.Dropout(0.3),
        layers.BatchNormalization(),
        layers.Dense(two, "relu", name="two", kernel_regularizer="l2"),
        layers.LayerNormalization(),
        layers.Dropout(0.2),
        layers.Dense(3),
    ]
    model = exburn.Sequential([exburn.Input((5,)), *stack])
    optimizer = AdamW(0.01, global_clipnorm=1.0)
    model.compile(optimizer, "cross_entropy", metrics=["accuracy"], seed=seed)
    return model


def convolutional(one=4, two=6, seed=4):
    stack = [
        layers.Conv2D(one, 3, activation="relu", name="one"),
        layers.MaxPooling2D(),
        layers.Dropout(0.2),
        layers.Conv2D(two, 2, padding="same", name="two"),
        layers.BatchNormalization(),
        layers.Flatten(),
        layers.Dense(3),
    ]
    model = exburn.Sequential([exburn.Input((6, 6, 1)), *stack])
    # Batch normalization takes biases out again: Adam would make steps of rounding.
    optimizer = SGD(0.05, momentum=0.9)
    model.compile(optimizer, "cross_entropy", metrics=["accuracy"], seed=seed)
    return model


@pytest.mark.parametrize(
    ("make", "x", "key"),
    [(dense, X, "units"), (convolutional, IMAGES, "filters")],
    ids=["units", "filters"],
)
def test_a_masked_lane_is_the_narrow_model(make, x, key, tmp_path):
    y = Y[: len(x)]
    over = {f"one/{key}": [3, 8], f"two/{key}": [2, 4], "seed": [1, 2]}
    result = sweep(make(), x, y, over=over, lanes=8, **FIT)
    for number in (1, 6):
        record = result.records[number]
        alone = make(*record.trial.values())
        wanted = alone.fit(x, y, **FIT).history
        for name, values in wanted.items():
            np.testing.assert_allclose(record.history[name], values, rtol=1e-5)
        built = result._build(number)
        for one, two in zip(built.get_weights(), alone.get_weights(), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-4, atol=2e-6)
        more = [model.fit(x, y, **FIT).history["loss"] for model in (built, alone)]
        np.testing.assert_allclose(*more, rtol=1e-5)
    built.save(tmp_path / "narrow.exburn")
    loaded = exburn.load_model(tmp_path / "narrow.exburn")
    assert loaded.get_layer("one").kernel.shape[-1] == record.trial[f"one/{key}"]


@pytest.mark.parametrize(
    ("stack", "says"),
    [
        ([layers.Dense(4, "softmax", name="one")], "softmax"),
        ([layers.Dense(4, name="one"), layers.Softmax()], "Softmax"),
        ([layers.Dense(4, name="one"), layers.Reshape((2, 2))], "Reshape"),
        (
            [layers.Dense(4, name="one"), layers.Flatten(), layers.Dropout(0.1)],
            "behind",
        ),
        ([layers.Dense(4, name="one")], "outputs"),
    ],
)
def test_what_computes_with_all_units_needs_a_program_for_each_width(stack, says):
    behind = [] if says == "outputs" else [layers.Flatten(), layers.Dense(3)]
    model = exburn.Sequential([exburn.Input((5,)), *stack, *behind])
    model.compile("adam", "cross_entropy")
    with pytest.raises(Unsupported, match=says):
        follow(model, "one/units", model.get_layer("one"), 8)


def test_an_optimizer_that_computes_with_whole_weights_does_so_too():
    model = dense()
    model.compile(Adafactor(0.01), "cross_entropy")
    with pytest.raises(Unsupported, match="Adafactor"):
        follow(model, "one/units", model.get_layer("one"), 8)


def test_weights_are_widened_by_zeros_and_narrowed_again():
    axes = Axis("kernel", 0), Axis("bias", 0)
    widths = {"units": Width("units", "one", 4, axes, ("one",))}
    kernel = np.arange(1.0, 9.0).reshape(4, 2)  # two units, at each of two positions
    wide = widen(widths, "kernel", kernel, (8, 2))
    assert wide[:, 0].tolist() == [1, 3, 0, 0, 5, 7, 0, 0]
    np.testing.assert_array_equal(narrow(widths, {"units": 2}, "kernel", wide), kernel)
    assert widen(widths, "other", kernel, (4, 2)) is kernel
