"""Tests of ``exburn.optimizers.adadelta``."""

SAME = [
    ("Adadelta", {}),
    ("Adadelta", {"learning_rate": 1.0, "rho": 0.8, "epsilon": 1e-3}),
]
