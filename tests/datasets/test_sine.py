"""Tests of ``exburn.datasets.sine``."""

import numpy as np

GENERATED = [
    "sine",
]


BAD_OPTIONS = [
    ("sine", {"noise": np.nan}),
]
