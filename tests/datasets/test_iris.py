"""Tests of ``exburn.datasets.iris``."""

PACKAGED = {
    "iris": (150, (4,), "float32", range(3)),
}
