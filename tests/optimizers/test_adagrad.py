"""Tests of ``exburn.optimizers.adagrad``."""

SAME = [
    ("Adagrad", {}),
    ("Adagrad", {"initial_accumulator_value": 0.5, "epsilon": 0.1}),
]
