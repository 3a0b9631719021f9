"""Tests of ``exburn.datasets.digits``."""

import sys

from exburn import datasets

PACKAGED = {
    "digits": (1797, (8, 8), "uint8", range(10)),
}


def test_the_images_come_with_exburn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    (x, y), (x_test, y_test) = datasets.digits.load_data()
    assert (len(x), len(y), len(x_test), len(y_test)) == (1438, 1438, 359, 359)
