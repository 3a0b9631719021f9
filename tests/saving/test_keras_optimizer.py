"""The state of Keras' optimizers: training goes on from its files."""

import keras
import numpy as np
import pytest

import exburn

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation", "ignore:You are saving your model as an HDF5"
)
KL, ops = keras.layers, keras.ops
DATA = np.random.default_rng(0).random((8, 6), np.float32)


def stack(rule="adam", **options):
    """A trained model; the names of its layers are those of no other's."""
    layers = [KL.Dense(4, activation="relu"), KL.BatchNormalization(), KL.Dense(2)]
    model = keras.Sequential([keras.Input((6,)), *layers], name="stack")
    model.compile(rule, options.pop("loss", "mse"), **options)
    train(model)
    return model


def train(model):
    model.fit(DATA, DATA[:, :2], batch_size=4, epochs=2, shuffle=False, verbose=0)


RULES = [
    ("SGD", {}),
    ("Adam", {"amsgrad": True}),
    ("Adam", {"gradient_accumulation_steps": 3}),
    ("AdamW", {}),
    ("RMSprop", {"momentum": 0.5}),
    ("RMSprop", {"centered": True}),
    ("Adagrad", {}),
    ("Adadelta", {}),
    ("Adamax", {}),
    ("Nadam", {}),
    ("Ftrl", {}),
    ("Lion", {}),
    ("Lamb", {}),
]


@pytest.mark.parametrize("form", ["keras", "h5"])
@pytest.mark.parametrize(
    ("name", "options"),
    RULES,
)
def test_training_goes_on_where_keras_left_off(name, options, form, tmp_path):
    rate = 0.05
    if name == "Adagrad":
        rate = keras.optimizers.schedules.ExponentialDecay(0.05, 3, 0.5)
    theirs = stack(getattr(keras.optimizers, name)(rate, **options))
    theirs.save(path := tmp_path / f"m.{form}")
    ours = exburn.load_model(path)
    assert type(ours.optimizer).__name__ == name
    train(theirs), train(ours)
    for mine, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-3, atol=2e-4)


def test_moving_averages_of_weights(tmp_path):
    theirs = stack(keras.optimizers.Adam(use_ema=True))
    theirs.save(path := tmp_path / "m.keras")
    ours = exburn.load_model(path)
    found = ours._training_state()["opt_state"]["average"]
    averages = theirs.optimizer._model_variables_moving_average
    for weight, other in zip(ours.trainable_weights, averages, strict=True):
        np.testing.assert_array_equal(found[weight.path], other)


def test_a_state_that_has_no_counterpart_is_told(tmp_path):
    stack(keras.optimizers.Adafactor(0.01)).save(path := tmp_path / "m.keras")
    with pytest.warns(UserWarning, match="state of Adafactor"):
        ours = exburn.load_model(path)
    train(ours)
