"""Tests of ``exburn.datasets.breast_cancer``."""

PACKAGED = {
    "breast_cancer": (569, (30,), "float32", range(2)),
}
