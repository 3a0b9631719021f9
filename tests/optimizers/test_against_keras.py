"""Options that all optimizers have, beside Keras'."""

import pytest
from tests.golden import keras

from exburn import optimizers

RULES = [
    ("SGD", {}),
    ("SGD", {"nesterov": True}),
    ("SGD", {"momentum": 0.8, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"clipnorm": 0.5}),
    ("SGD", {"clipvalue": 0.1}),
    ("SGD", {"momentum": 0.9, "global_clipnorm": 1.0}),
    ("SGD", {"momentum": 0.9, "loss_scale_factor": 8.0}),
    ("SGD", {"momentum": 0.9, "gradient_accumulation_steps": 5}),
    ("Adam", {}),
    ("Adam", {"learning_rate": 0.05, "beta_1": 0.8, "beta_2": 0.99, "epsilon": 0.1}),
    ("Adam", {"amsgrad": True}),
    ("Adam", {"weight_decay": 0.1, "clipnorm": 1.0}),
    ("AdamW", {}),
    ("AdamW", {"learning_rate": 0.1, "weight_decay": 0.5, "epsilon": 1e-2}),
    ("AdamW", {"amsgrad": True, "clipvalue": 0.1}),
    ("Adamax", {}),
    ("Adamax", {"learning_rate": 0.1, "beta_1": 0.5, "beta_2": 0.9, "epsilon": 1e-3}),
    ("Nadam", {}),
    ("Nadam", {"learning_rate": 0.1, "beta_1": 0.8, "epsilon": 1e-3}),
    ("RMSprop", {}),
    ("RMSprop", {"momentum": 0.9, "epsilon": 0.1, "weight_decay": 0.1}),
    ("RMSprop", {"centered": True}),
    ("RMSprop", {"centered": True, "epsilon": 1e-2, "momentum": 0.9, "rho": 0.7}),
    ("Adagrad", {}),
    ("Adagrad", {"initial_accumulator_value": 0.5, "epsilon": 0.1}),
    ("Adadelta", {}),
    ("Adadelta", {"learning_rate": 1.0, "rho": 0.8, "epsilon": 1e-3}),
    ("Adafactor", {}),
    ("Adafactor", {"learning_rate": 0.5, "clip_threshold": 0.5, "beta_2_decay": -0.5}),
    ("Adafactor", {"learning_rate": 0.5, "relative_step": False}),
    ("Lamb", {}),
    ("Lamb", {"learning_rate": 0.05, "weight_decay": 0.1, "epsilon": 1e-3}),
    ("Lion", {}),
    ("Lion", {"beta_1": 0.7, "beta_2": 0.8, "weight_decay": 0.1}),
    ("Ftrl", {}),
    (
        "Ftrl",
        {
            "learning_rate": 0.5,
            "learning_rate_power": -0.7,
            "initial_accumulator_value": 0.3,
            "l1_regularization_strength": 0.2,
            "l2_regularization_strength": 0.1,
            "l2_shrinkage_regularization_strength": 0.05,
            "beta": 0.5,
        },
    ),
    ("Muon", {}),
    ("Muon", {"learning_rate": 0.05, "nesterov": False, "adam_weight_decay": 0.3}),
    ("Muon", {"exclude_embeddings": False, "exclude_layers": ["kern"], "ns_steps": 3}),
    ("Muon", {"rms_rate": None, "adam_lr_ratio": 0.3, "weight_decay": None}),
    ("ScheduleFreeAdamW", {}),
    ("ScheduleFreeAdamW", {"warmup_steps": 10, "weight_decay": 0.1, "beta_1": 0.7}),
]

OPTIONS = {
    "decay": {"weight_decay": 0.1, "clipnorm": 0.7},
    "average": {"use_ema": True, "ema_momentum": 0.9, "ema_overwrite_frequency": 4},
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", sorted({name for name, _ in RULES}))
def test_options_that_all_optimizers_have(name, option, trajectories):
    make = lambda library: getattr(library, name)(**OPTIONS[option])  # noqa: E731
    ours = trajectories.ours(make(optimizers))
    theirs = trajectories.keras(lambda: make(keras.optimizers))
    tolerance = 1e-4 if name in ("Lamb", "Muon", "ScheduleFreeAdamW") else 3e-5
    trajectories.assert_close(ours, theirs, tolerance, tolerance)


def test_every_public_name_of_keras_exists():
    public = [n for n in dir(keras.optimizers) if n[0].isupper() and n != "legacy"]
    assert [n for n in public if not hasattr(optimizers, n)] == []
    schedules = [n for n in dir(keras.optimizers.schedules) if n[0].isupper()]
    assert [n for n in schedules if not hasattr(optimizers.schedules, n)] == []
