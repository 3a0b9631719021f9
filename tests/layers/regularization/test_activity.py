"""Tests of ``exburn.layers.regularization.activity``."""

from tests.layers.inputs import FLAT

from exburn import layers as L

CONTRACT = {
    "ActivityRegularization": (L.ActivityRegularization, (0.1, 0.2), FLAT, {}),
}
