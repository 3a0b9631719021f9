"""Tests of ``exburn.optimizers.ftrl``."""

SAME = [
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
]
