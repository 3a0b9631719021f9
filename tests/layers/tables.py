"""Tests of the tables that the files of layers state."""

from functools import partial

import pytest
from tests.layers.beside_keras import check_same_as_keras
from tests.layers.check_layer import check_layer
from tests.tables import table

from exburn.errors import ShapeError


@table("CONTRACT", "cls", "args", "x", "options")
def test_contract(cls, args, x, options):
    check_layer(partial(cls, *args), x, **options)


@table("BESIDE_KERAS", "name", "options", "x", ids=lambda i, row: f"{i}-{row[0]}")
@pytest.mark.filterwarnings("ignore:You passed `rms_scaling")  # Keras', not ours
def test_same_as_keras(name, options, x):
    check_same_as_keras(name, options, x)


@table("BAD_SHAPES", "layer", "x", "text", ids=lambda i, row: row[2])
def test_shapes_that_do_not_fit(layer, x, text):
    with pytest.raises(ShapeError) as caught:
        layer(x)
    assert text in str(caught.value)
    assert "in layer" in str(caught.value)
