"""Tests: test_in_models."""

import numpy as np
from tests.layers.preprocessing.trained import X, Y, compiled

import exburn
from exburn import layers as L


def augmented():
    return [
        L.RandomFlip("horizontal"),
        L.RandomRotation(0.1),
        L.RandomCrop(6, 6),
        L.MixUp(),
        L.Mosaic(),
        L.Flatten(),
        L.Dense(2),
    ]


def test_augmentation_is_part_of_the_compiled_step():
    model = compiled([exburn.Input((8, 8, 3)), *augmented()])
    history = model.fit(X, Y, batch_size=16, epochs=3, verbose=0)
    assert model.trace_counts["train"] == 1
    assert np.isfinite(history.history["loss"]).all()
    first = model.predict(X, verbose=0)
    np.testing.assert_array_equal(model.predict(X, verbose=0), first)
    again = compiled([exburn.Input((8, 8, 3)), *augmented()])
    repeated = again.fit(X, Y, batch_size=16, epochs=3, verbose=0)
    assert repeated.history == history.history


def test_a_model_that_is_built_from_the_data():
    model = compiled([L.RandomTranslation(0.1, 0.1), L.Flatten(), L.Dense(2)])
    model.fit(X, Y, batch_size=16, epochs=2, verbose=0)
    assert model.trace_counts["train"] == 1
    assert model.predict(X, verbose=0).shape == (50, 2)


def test_each_step_draws_anew():
    seen = []
    layer = L.RandomBrightness(0.5, value_range=(0, 1))
    model = exburn.Sequential([exburn.Input((8, 8, 3)), layer, L.Flatten(), L.Dense(1)])
    model.compile(exburn.optimizers.SGD(0.0), "mse", seed=1)
    y = np.zeros((50, 1), "float32")
    for _ in range(2):
        history = model.fit(X, y, batch_size=50, epochs=3, shuffle=False, verbose=0)
        seen += history.history["loss"]
    assert len(set(seen)) > 3  # equal weights and data, other images


def test_a_uint8_model_with_normalization_learns():
    x = (X * 255).astype("uint8")
    normalize = L.Normalization()
    normalize.adapt(x)
    model = compiled(
        [exburn.Input((8, 8, 3), dtype="uint8"), normalize, L.Flatten(), L.Dense(2)]
    )
    before = normalize.get_weights()
    model.fit(x, Y, epochs=30, verbose=0)
    assert model.evaluate(x, Y, verbose=0, return_dict=True)["accuracy"] > 0.9
    for a, b in zip(before, normalize.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_categories_inside_a_functional_model():
    number, kind = exburn.Input((1,)), exburn.Input((1,), dtype="int32")
    binned = L.Discretization([-1.0, 0.0, 1.0], output_mode="one_hot")(number)
    lookup = L.IntegerLookup(vocabulary=[70, 7, 700], output_mode="one_hot")(kind)
    joined = L.Concatenate()([binned, lookup])
    assert joined.shape == (None, 8)
    model = exburn.Model([number, kind], L.Dense(1)(joined))
    model.compile("adam", "mse")
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(40, 1)), rng.choice([7, 70, 700, 1], (40, 1))]
    model.fit(x, rng.normal(size=(40, 1)), verbose=0)
    assert model.predict(x, verbose=0).shape == (40, 1)


def test_texts_before_a_model():
    texts = ["good fun", "very good", "so bad", "bad bad film"] * 10
    labels = np.array([1, 1, 0, 0] * 10)
    vectorize = L.TextVectorization(output_mode="multi_hot")
    vectorize.adapt(texts)
    model = exburn.Sequential([L.Dense(2)])
    model.compile(exburn.optimizers.Adam(0.1), "cross_entropy", metrics=["accuracy"])
    model.fit(vectorize(texts), labels, epochs=30, batch_size=40, verbose=0)
    result = model.evaluate(vectorize(texts), labels, verbose=0, return_dict=True)
    assert result["accuracy"] == 1
