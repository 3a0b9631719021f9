"""Memory and time are bounded by a file's length: a table of readers and bombs."""

import pytest
from tests import limits
from tests.bombs.readers import TABLE

from exburn.errors import ExBurnError

#: Long to make or to refuse; of two formats that share it, CI takes the first.
LONG = ("many_entries", "packed", "long_chunk", "doubly_packed", "many_members")
LONG += ("many_files", "zeros", "long_header")
LONG += ("texts without", "dicts without", "lists in", "a memo", "numbers of", "collec")


def cases():
    seen = set()
    for kind, (bombs, _) in TABLE.items():
        for name in bombs:
            marks = [pytest.mark.long] if name.startswith(LONG) else []
            marks += [pytest.mark.longest] if marks and name in seen else []
            seen.add(name)
            yield pytest.param(f"{kind}: {name}", marks=marks)


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
