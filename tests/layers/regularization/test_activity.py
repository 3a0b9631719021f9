"""Tests of ``exburn.layers.regularization.activity``."""

from functools import partial

import pytest
from tests.layers.check_layer import check_layer
from tests.layers.inputs import FLAT

from exburn import layers as L

CONTRACT = {
    "ActivityRegularization": (L.ActivityRegularization, (0.1, 0.2), FLAT, {}),
}


@pytest.mark.parametrize("name", CONTRACT)
def test_contract(name):
    cls, args, x, options = CONTRACT[name]
    check_layer(partial(cls, *args), x, **options)
