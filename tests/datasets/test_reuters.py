"""Tests of ``exburn.datasets.reuters``."""

import pytest

from exburn.datasets import reuters


def test_reuters_label_names():
    keras = pytest.importorskip("keras")
    assert reuters.get_label_names() == keras.datasets.reuters.get_label_names()
