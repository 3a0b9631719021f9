"""Tests of ``exburn.datasets.california_housing``."""

import pytest
from tests.datasets.downloads import check_housing

from exburn.datasets import california_housing


@pytest.mark.parametrize(
    "module",
    [
        california_housing,
    ],
)
def test_housing(module, cache, server, monkeypatch, tmp_path):
    check_housing(module, cache, server, monkeypatch, tmp_path)
