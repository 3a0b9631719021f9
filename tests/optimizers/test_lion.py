"""Tests of ``exburn.optimizers.lion``."""

SAME = [
    ("Lion", {}),
    ("Lion", {"beta_1": 0.7, "beta_2": 0.8, "weight_decay": 0.1}),
]
