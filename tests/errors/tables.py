"""Tests of the tables that the files of errors state."""

from tests.errors.bench import check_refused
from tests.tables import table


@table("bad", "case", ids=lambda i, case: case.act.__name__)
def test_what_is_bad_is_refused(case):
    check_refused(case)
