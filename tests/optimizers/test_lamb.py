"""Tests of ``exburn.optimizers.lamb``."""

SAME = [
    ("Lamb", {}),
    ("Lamb", {"learning_rate": 0.05, "weight_decay": 0.1, "epsilon": 1e-3}),
]
