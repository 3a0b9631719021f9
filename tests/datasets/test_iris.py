"""Tests of ``exburn.datasets.iris``."""

import pytest
from tests.datasets.given import check_packaged

PACKAGED = {
    "iris": (150, (4,), "float32", range(3)),
}


@pytest.mark.parametrize("name", PACKAGED)
def test_packaged(name):
    check_packaged(name, PACKAGED[name])
