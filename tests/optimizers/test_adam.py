"""Tests of ``exburn.optimizers.adam``."""

SAME = [
    ("Adam", {}),
    ("Adam", {"learning_rate": 0.05, "beta_1": 0.8, "beta_2": 0.99, "epsilon": 0.1}),
    ("Adam", {"amsgrad": True}),
    ("Adam", {"weight_decay": 0.1, "clipnorm": 1.0}),
    ("AdamW", {}),
    ("AdamW", {"learning_rate": 0.1, "weight_decay": 0.5, "epsilon": 1e-2}),
    ("AdamW", {"amsgrad": True, "clipvalue": 0.1}),
]


EPSILON = [
    "Adam",
    "AdamW",
]
