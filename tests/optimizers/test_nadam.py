"""Tests of ``exburn.optimizers.nadam``."""

SAME = [
    ("Nadam", {}),
    ("Nadam", {"learning_rate": 0.1, "beta_1": 0.8, "epsilon": 1e-3}),
]


EPSILON = [
    "Nadam",
]
