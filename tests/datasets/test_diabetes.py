"""Tests of ``exburn.datasets.diabetes``."""

PACKAGED = {
    "diabetes": (442, (10,), "float32", None),
}
