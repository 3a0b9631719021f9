"""Tests of ``exburn.optimizers.rmsprop``."""

SAME = [
    ("RMSprop", {}),
    ("RMSprop", {"momentum": 0.9, "epsilon": 0.1, "weight_decay": 0.1}),
    ("RMSprop", {"centered": True}),
    ("RMSprop", {"centered": True, "epsilon": 1e-2, "momentum": 0.9, "rho": 0.7}),
]


EPSILON = [
    "RMSprop",
]
