"""Tests of ``exburn.datasets.digits``."""

import pytest
from tests.datasets.given import check_packaged

PACKAGED = {
    "digits": (1797, (8, 8), "uint8", range(10)),
}


@pytest.mark.parametrize("name", PACKAGED)
def test_packaged(name):
    check_packaged(name, PACKAGED[name])
