"""Tests of the tables that the files of data sets state."""

import pytest
from tests.datasets.given import check_generated_sets_honour_their_seed, check_packaged
from tests.tables import table

from exburn import datasets
from exburn.errors import ArgumentError


@table("BAD_OPTIONS", "name", "options")
def test_options_of_the_generated_sets(name, options):
    with pytest.raises(ArgumentError, match=name):
        getattr(datasets, name).generate(10, **options)


@table("GENERATED", "name")
def test_generated_sets_honour_their_seed(name):
    check_generated_sets_honour_their_seed(name)


@table("PACKAGED", "name", rows=list)
def test_packaged(name, request):
    check_packaged(name, request.module.PACKAGED[name])
