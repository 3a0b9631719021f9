"""Tests of ``exburn.datasets.moons``."""

GENERATED = [
    "moons",
]


BAD_OPTIONS = [
    ("moons", {"noise": -1}),
]
