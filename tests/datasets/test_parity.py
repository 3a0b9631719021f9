"""Tests of ``exburn.datasets.parity``."""

GENERATED = [
    "parity",
]


BAD_OPTIONS = [
    ("parity", {"bits": 4, "relevant": 5}),
    ("parity", {"bits": 0}),
]
