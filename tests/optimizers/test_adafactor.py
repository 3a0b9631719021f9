"""Tests of ``exburn.optimizers.adafactor``."""

SAME = [
    ("Adafactor", {}),
    ("Adafactor", {"learning_rate": 0.5, "clip_threshold": 0.5, "beta_2_decay": -0.5}),
    ("Adafactor", {"learning_rate": 0.5, "relative_step": False}),
]
