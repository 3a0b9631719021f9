"""Tests of ``exburn.datasets.spirals``."""

GENERATED = [
    "spirals",
]


BAD_OPTIONS = [
    ("spirals", {"classes": 1}),
]
