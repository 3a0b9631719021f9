"""Tests of ``exburn.layers.core.wrapper``."""

from functools import partial

import pytest
from tests.layers.check_layer import check_layer
from tests.layers.inputs import FLAT

from exburn import layers as L
from exburn.errors import ArgumentError

CONTRACT = {
    "Wrapper": (
        lambda *a, **k: L.Wrapper(L.Dense(3, dtype=k.get("dtype")), **k),
        (),
        FLAT,
        {},
    ),
}

BAD_ARGUMENTS = [
    (lambda: L.Wrapper(3), "a layer is needed"),
]


@pytest.mark.parametrize("name", CONTRACT)
def test_contract(name):
    cls, args, x, options = CONTRACT[name]
    check_layer(partial(cls, *args), x, **options)


@pytest.mark.parametrize(
    ("make", "text"), BAD_ARGUMENTS, ids=[t for _, t in BAD_ARGUMENTS]
)
def test_arguments_that_cannot_work(make, text):
    with pytest.raises(ArgumentError) as caught:
        make()
    assert text in str(caught.value)
