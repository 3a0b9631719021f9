"""Tests of ``exburn.optimizers.adamax``."""

SAME = [
    ("Adamax", {}),
    ("Adamax", {"learning_rate": 0.1, "beta_1": 0.5, "beta_2": 0.9, "epsilon": 1e-3}),
]


EPSILON = [
    "Adamax",
]
