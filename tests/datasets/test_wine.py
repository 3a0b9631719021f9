"""Tests of ``exburn.datasets.wine``."""

import pytest
from tests.datasets.given import check_packaged

PACKAGED = {
    "wine": (178, (13,), "float32", range(3)),
}


@pytest.mark.parametrize("name", PACKAGED)
def test_packaged(name):
    check_packaged(name, PACKAGED[name])
