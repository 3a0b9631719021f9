"""Tests of ``exburn.datasets.boston_housing``."""

import pytest
from tests.datasets.downloads import check_housing

from exburn.datasets import boston_housing


@pytest.mark.parametrize(
    "module",
    [
        boston_housing,
    ],
)
def test_housing(module, cache, server, monkeypatch, tmp_path):
    check_housing(module, cache, server, monkeypatch, tmp_path)
