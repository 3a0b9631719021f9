"""Tests of ``exburn.datasets.wine``."""

PACKAGED = {
    "wine": (178, (13,), "float32", range(3)),
}
