"""Tests of ``exburn.datasets.circles``."""

GENERATED = [
    "circles",
]


BAD_OPTIONS = [
    ("circles", {"factor": 1}),
]
