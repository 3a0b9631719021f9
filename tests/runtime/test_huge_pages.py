"""Memory that others fill is made of huge pages; what it holds is theirs."""

import ctypes
import io
import sys
import threading
import time

import numpy as np
import pytest

from exburn.runtime import huge_pages
from exburn.runtime.huge_pages import _mapped_regions, _new

SIZE = 512 << 20
LIBC = ctypes.CDLL(None)
LIBC.malloc.restype = ctypes.c_void_p
LIBC.malloc.argtypes = (ctypes.c_size_t,)
LIBC.free.argtypes = (ctypes.c_void_p,)

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux' own")


@pytest.fixture
def taken():
    """Takes memory as XLA does; says what it holds, and how much is in huge pages."""
    places = []

    def take(size=SIZE, pause=0.2):
        places.append(LIBC.malloc(size))
        array = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(places[-1]))
        for part in np.array_split(array, 4):
            part[:] = 255
            time.sleep(pause / 4)
        return places[-1], array

    yield take
    for place in places:
        LIBC.free(place)


def huge_bytes(place):
    """Of the mapping in which ``place`` lies."""
    inside = False
    with open("/proc/self/smaps") as lines:
        for line in lines:
            first, *rest = line.split()
            if "-" in first and len(rest) >= 4:
                start, end = (int(address, 16) for address in first.split("-"))
                inside = start <= place < end
            elif inside and first == "AnonHugePages:":
                return int(rest[0]) * 1024
    raise AssertionError("no mapping holds this place")


def kernel_has_them():
    try:
        with open("/sys/kernel/mm/transparent_hugepage/enabled") as file:
            return "[never]" not in file.read()
    except FileNotFoundError:
        return False


@linux
@pytest.mark.skipif(not kernel_has_them(), reason="the kernel gives no huge pages")
def test_memory_taken_in_the_block_is_of_huge_pages(taken):
    with huge_pages.huge_pages(SIZE):
        place, array = taken()
    assert huge_bytes(place) > SIZE / 2
    assert array.min() == 255


@linux
def test_memory_that_was_there_is_left_alone(taken):
    place, array = taken(pause=0)
    before = huge_bytes(place)
    with huge_pages.huge_pages(SIZE):
        time.sleep(0.05)
    assert huge_bytes(place) == before
    assert array.min() == 255


@linux
def test_much_larger_memory_is_somebody_elses(taken):
    with huge_pages.huge_pages(SIZE - (200 << 20)):
        place, array = taken()
    assert huge_bytes(place) == 0
    assert array.min() == 255


@linux
def test_what_is_written_first_stays(taken, monkeypatch):
    """The threads run behind the writer here, over all that it wrote."""
    monkeypatch.setattr(huge_pages, "_POLL", 0.1)
    with huge_pages.huge_pages(SIZE):
        _, array = taken(pause=0)
        time.sleep(0.5)
    assert array.min() == 255


@linux
def test_a_kernel_that_refuses_changes_nothing(taken, monkeypatch):
    monkeypatch.setattr(huge_pages, "_POPULATE_WRITE", 9999)
    monkeypatch.setattr(huge_pages, "_HUGEPAGE", 9999)
    with huge_pages.huge_pages(SIZE):
        _, array = taken(pause=0)
    assert array.min() == 255


@linux
def test_memory_given_back_meanwhile():
    huge_pages._fill_in(1 << 44, (1 << 44) + SIZE, threading.Event())
    assert all(start != 1 << 44 for start, _ in _mapped_regions())


@pytest.mark.parametrize(
    ("known", "place"),
    [
        ([], 0),
        ([(0, 100)], None),  # was there
        ([(100, 120)], 0),  # joined with what lies behind it
        ([(0, 20)], 20),  # or before it
        ([(10, 20), (50, 60)], None),  # small new pieces between old ones
        ([(200, 300)], 0),
    ],
)
def test_what_is_new_in_joined_memory(known, place):
    assert _new(0, 120, 100, known) == place


@linux
@pytest.mark.parametrize("what", ["files", "threads", "format"])
def test_where_it_cannot_be_done_nothing_is(taken, monkeypatch, what):
    def refuse(*_, **__):
        raise (RuntimeError if what == "threads" else OSError)("none is left")

    if what == "threads":
        monkeypatch.setattr(threading.Thread, "start", refuse)
    elif what == "files":
        monkeypatch.setattr(huge_pages, "open", refuse, raising=False)
    else:
        odd = lambda _: io.StringIO("no map at all\n")  # noqa: E731
        monkeypatch.setattr(huge_pages, "open", odd, raising=False)
    with huge_pages.huge_pages(SIZE):
        _, array = taken(pause=0)
    assert array.min() == 255


@pytest.mark.parametrize("size", [0, 1 << 20, 1 << 40])
def test_no_thread_is_left_and_errors_come_through(size):
    with pytest.raises(ZeroDivisionError), huge_pages.huge_pages(size):
        raise ZeroDivisionError
    assert not any("huge" in thread.name for thread in threading.enumerate())
