"""Tests of the tables that the files of ops state."""

import pytest
from tests.ops.check import check_symbols, check_unknown_batch, check_values
from tests.tables import table


def cases(rows):
    return [pytest.param(rows, *case.values, id=case.id) for case in rows.rows]


@table("CASES", "cases", "name", "i", rows=cases)
@pytest.mark.filterwarnings("ignore:invalid value|overflow|divide by zero")
def test_values_are_those_of_keras(cases, name, i, golden):
    check_values(cases, name, i, golden)


@table("CASES", "cases", "name", "i", rows=cases)
def test_shapes_of_symbols_are_those_of_arrays(cases, name, i):
    check_symbols(cases, name, i)


@table("UNKNOWN_BATCH", "name")
def test_batches_of_unknown_size(name, request):
    check_unknown_batch(request.module.CASES, name)


@table("UNKNOWN_FIRST", "name")
def test_batches_of_unknown_size_stay_unknown(name, request):
    check_unknown_batch(request.module.CASES, name, first_is_unknown=True)
