"""Tests of ``exburn.datasets.breast_cancer``."""

import pytest
from tests.datasets.given import check_packaged

PACKAGED = {
    "breast_cancer": (569, (30,), "float32", range(2)),
}


@pytest.mark.parametrize("name", PACKAGED)
def test_packaged(name):
    check_packaged(name, PACKAGED[name])
