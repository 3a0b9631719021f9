"""The same gradients give the same parameters as in Keras, for 50 steps."""

from __future__ import annotations

import keras
import pytest

from exburn import optimizers

SAME = [
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


CASES = [  # the defaults, which say less, are left to the long run
    pytest.param(*case, marks=[pytest.mark.long] if not case[1] else [])
    for case in SAME
]


@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda v: str(v)[:60])
def test_fifty_steps(name, options, trajectories):
    # These two treat parameters by rank and name.
    special = name in ("Adafactor", "Muon")
    names = ("kernel", "bias", "conv", "embedding") if special else ("kernel", "bias")
    ours = trajectories.ours(getattr(optimizers, name)(**options), names)
    theirs = trajectories.keras(getattr(keras.optimizers, name)(**options), names)
    # Lamb and Muon divide by norms, 50 times over.
    tolerance = 1e-4 if name in ("Lamb", "Muon", "ScheduleFreeAdamW") else 1e-5
    trajectories.assert_close(ours, theirs, tolerance, tolerance)


OPTIONS = {
    "decay": {"weight_decay": 0.1, "clipnorm": 0.7},
    "average": {"use_ema": True, "ema_momentum": 0.9, "ema_overwrite_frequency": 4},
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", sorted({name for name, _ in SAME}))
@pytest.mark.long
def test_options_that_all_optimizers_have(name, option, trajectories):
    made = [getattr(o, name)(**OPTIONS[option]) for o in (optimizers, keras.optimizers)]
    ours, theirs = trajectories.ours(made[0]), trajectories.keras(made[1])
    tolerance = 1e-4 if name in ("Lamb", "Muon", "ScheduleFreeAdamW") else 1e-5
    trajectories.assert_close(ours, theirs, tolerance, tolerance)


@pytest.mark.parametrize("nesterov", [False, True])
def test_velocities_keep_the_rates_they_had(nesterov, trajectories):
    made = []
    for library in (optimizers, keras.optimizers):
        schedule = library.schedules.ExponentialDecay(0.5, 5, 0.5, staircase=True)
        made.append(library.SGD(schedule, momentum=0.9, nesterov=nesterov))
    trajectories.assert_close(trajectories.ours(made[0]), trajectories.keras(made[1]))


@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSprop", "Adamax", "Nadam"])
def test_epsilon_is_where_keras_has_it(name, trajectories, monkeypatch):
    small = {k: 1e-6 * v for k, v in trajectories.grads.items()}
    monkeypatch.setattr(trajectories, "grads", small)
    ours = trajectories.ours(getattr(optimizers, name)())
    theirs = trajectories.keras(getattr(keras.optimizers, name)())
    moved = abs(ours["kernel"][-1] - trajectories.params["kernel"]).max()
    assert moved > 1e-4
    trajectories.assert_close(ours, theirs, 1e-6, 1e-6)


@pytest.mark.parametrize("every", [None, 4])
def test_moving_average(every, trajectories):
    options = {"use_ema": True, "ema_momentum": 0.9, "ema_overwrite_frequency": every}
    ours = trajectories.ours(optimizers.SGD(0.1, 0.5, **options))
    theirs = trajectories.keras(keras.optimizers.SGD(0.1, 0.5, **options))
    trajectories.assert_close(ours, theirs)


def test_exclusion_from_weight_decay(trajectories):
    pair = optimizers.Lion(weight_decay=0.5), keras.optimizers.Lion(weight_decay=0.5)
    for optimizer in pair:
        optimizer.exclude_from_weight_decay(var_names=["bias", "^kern$"])
    trajectories.assert_close(trajectories.ours(pair[0]), trajectories.keras(pair[1]))


@pytest.mark.parametrize("accumulate", [None, 5])
def test_schedule_sees_the_batches_that_keras_counts(accumulate, trajectories):
    options = {"weight_decay": 0.1, "gradient_accumulation_steps": accumulate}
    made = []
    for library in (optimizers, keras.optimizers):
        schedule = library.schedules.PolynomialDecay(0.5, 40, power=2.0)
        made.append(library.Lion(schedule, **options))
    trajectories.assert_close(trajectories.ours(made[0]), trajectories.keras(made[1]))


def test_loss_scale_optimizer(trajectories):
    made = [
        library.LossScaleOptimizer(
            library.SGD(0.1, momentum=0.5), initial_scale=16.0, dynamic_growth_steps=7
        )
        for library in (optimizers, keras.optimizers)
    ]
    grads = trajectories.grads["kernel"]
    saved = grads[9].copy(), grads[30].copy()
    try:  # two overflows among the gradients
        grads[9, 0, 0], grads[30, 2, 3] = float("inf"), float("nan")
        ours, theirs = trajectories.ours(made[0]), trajectories.keras(made[1])
    finally:
        grads[9], grads[30] = saved
    trajectories.assert_close(ours, theirs)


def test_multi_optimizer(trajectories):
    made = []
    for library in (optimizers, keras.optimizers):
        choice = library.OptimizerMap(
            library.Lion(0.01), {"bias": library.SGD(0.1, momentum=0.5)}
        )
        choice["k.*l|em"] = library.Adamax(0.1)
        made.append(library.MultiOptimizer(choice))
    names = ("kernel", "bias", "embedding")
    ours = trajectories.ours(made[0], names)
    trajectories.assert_close(ours, trajectories.keras(made[1], names))


def test_every_public_name_of_keras_exists():
    public = [n for n in dir(keras.optimizers) if n[0].isupper() and n != "legacy"]
    assert [n for n in public if not hasattr(optimizers, n)] == []
    schedules = [n for n in dir(keras.optimizers.schedules) if n[0].isupper()]
    assert [n for n in schedules if not hasattr(optimizers.schedules, n)] == []
