"""Memory and time are bounded by a file's length: a table of readers and bombs."""

import pytest
from tests import limits
from tests.bombs.readers import TABLE

from exburn.errors import ExBurnError

#: Long to make or to refuse.
LONG = (
    *(
        "many_entries",
        "packed",
        "long_chunk",
        "doubly_packed",
        "many_members",
        "blanks",
    ),
    *(
        "many_files",
        "zeros",
        "long_header",
        "wide_text",
        "many_records",
        "many_tensors",
    ),
    *("more_than_told", "global_headers", "zip_", "a template of", "twelve doublings"),
    *("many_packed", "long_name", "records", "texts without", "dicts without"),
    *("lists in", "a memo", "numbers of", "collec"),
)


def cases():
    for kind, (bombs, _) in TABLE.items():
        for name in bombs:
            yield f"{kind}: {name}"


@pytest.mark.parametrize("case", list(cases()))
def test_no_reader_takes_more_than_a_file_explains(case, tmp_path):
    kind, _, name = case.partition(": ")
    seconds = limits.SECONDS * (5 if name.startswith(LONG) else 1)
    bombs, readers = TABLE[kind]
    path = bombs[name](tmp_path)
    faults = {}
    for reader, read in readers.items():
        try:
            limits.bounded(lambda read=read: read(path), seconds=seconds)
        except ExBurnError as error:
            assert len(str(error)) < 3000
        except SystemExit:
            pass
        except Exception as error:  # each of them is a finding
            faults[reader] = f"{type(error).__name__}: {error}"[:300]
        except AssertionError as error:
            faults[reader] = str(error)
    assert not faults
