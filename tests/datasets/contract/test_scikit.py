"""Tests of ``exburn.datasets.contract.scikit``."""

import sys

import pytest

from exburn import datasets
from exburn.errors import MissingDependencyError


def test_packaged_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingDependencyError, match="pip install scikit-learn"):
        datasets.iris.load_data()
