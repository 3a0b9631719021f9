"""LiteRT's packages, for the tests that run its files."""

import pytest


@pytest.fixture
def litert():
    for package in ("litert_converter", "ai_edge_litert", "litert_quantizer"):
        pytest.importorskip(package)
