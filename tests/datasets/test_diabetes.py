"""Tests of ``exburn.datasets.diabetes``."""

import pytest
from tests.datasets.given import check_packaged

PACKAGED = {
    "diabetes": (442, (10,), "float32", None),
}


@pytest.mark.parametrize("name", PACKAGED)
def test_packaged(name):
    check_packaged(name, PACKAGED[name])
