"""Tests of the tables that the files of attention state."""

import pytest
from tests.layers.check_layer import check_layer
from tests.tables import table

from exburn import errors


@table("CONTRACT", "make", "inputs", "options")
def test_contract(make, inputs, options):
    check_layer(make, *inputs, **options)


@table("ERRORS", "make", "words")
def test_errors(make, words):
    with pytest.raises((errors.ArgumentError, errors.ShapeError), match=words):
        make()
