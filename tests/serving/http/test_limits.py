import time

import pytest

from exburn.errors import ArgumentError
from exburn.serving.http.failures import RequestFailure
from exburn.serving.http.limits import (
    ApiKeys,
    Rate,
    RequestMemory,
    most_connections,
    size_in_bytes,
)

KEY, OTHER = "a-key-of-sixteen", "another-key-of-some-length"


def test_a_key_comes_in_either_header():
    keys = ApiKeys([KEY, OTHER])
    names = {
        keys.check({b"authorization": b"Bearer " + KEY.encode()}),
        keys.check({b"authorization": b"bearer  " + OTHER.encode()}),
        keys.check({b"x-api-key": KEY.encode()}),
    }
    assert len(names) == 2 and not any(KEY.startswith(name) for name in names)
    for headers in (
        {},
        {b"x-api-key": b""},
        {b"x-api-key": KEY[:-1].encode()},
        {b"x-api-key": b"\xff\0"},
        {b"authorization": KEY.encode()},
        {b"authorization": b"Basic " + KEY.encode()},
    ):
        with pytest.raises(RequestFailure) as caught:
            keys.check(headers)
        assert caught.value.status == 401


@pytest.mark.parametrize("key", ["", "short", "ä" * 20, " " + KEY, 7, None])
def test_keys_that_can_be_guessed_are_refused(key):
    with pytest.raises(ArgumentError, match="16 ASCII characters"):
        ApiKeys([KEY, key])
    assert not ApiKeys([]) and ApiKeys(KEY)


def test_the_rate_is_each_callers_own(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    rate = Rate(2)
    for _ in range(2):
        rate.take("a")
    with pytest.raises(RequestFailure) as caught:
        rate.take("a")
    assert (caught.value.status, caught.value.headers) == (429, {"retry-after": "1"})
    rate.take("b")
    now[0] = 0.5
    rate.take("a")
    with pytest.raises(RequestFailure):
        rate.take("a")
    now[0] = 100.0
    for _ in range(2):
        rate.take("a")
    with pytest.raises(RequestFailure):
        rate.take("a")
    slow = Rate(0.1)
    slow.take("a")
    with pytest.raises(RequestFailure) as caught:
        slow.take("a")
    assert caught.value.headers == {"retry-after": "10"}


def test_callers_who_are_made_up_take_no_memory():
    rate = Rate(1)
    for i in range(10_100):
        rate.take(str(i))
    assert len(rate._buckets) == 10_000


@pytest.mark.parametrize("rate", [0, -1, "1", float("nan")])
def test_a_rate_is_a_number_above_zero(rate):
    with pytest.raises(ArgumentError):
        Rate(rate)


def test_memory_is_that_of_all_requests():
    memory = RequestMemory(1000)
    with memory.reserve() as first:
        first.grow(40)
        with memory.reserve() as second, pytest.raises(RequestFailure) as caught:
            second.grow(2)
        assert caught.value.status == 503
        with memory.reserve() as third:
            third.take(40)
            with pytest.raises(RequestFailure) as caught:
                third.take(1001)  # there never will be
            assert caught.value.status == 413
    assert memory.used == 0


@pytest.mark.parametrize("size", [0, -1, "8", "8 cats", None, True, 1.5])
def test_sizes_have_units(size):
    assert size_in_bytes("Server", "max_body", "1.5 KiB") == 1536
    assert size_in_bytes("Server", "max_body", 77) == 77
    with pytest.raises(ArgumentError, match="max_body"):
        size_in_bytes("Server", "max_body", size)


def test_what_a_thread_takes_for_a_request_that_is_over_is_given_back():
    memory = RequestMemory(100)
    with memory.reserve() as reservation:
        reservation.take(60)
    assert memory.used == 0
    reservation.take(70)
    assert memory.used == 0


def test_connections_leave_files_to_open():
    default = most_connections("Server", None)
    assert 1 <= default <= 1000 and most_connections("Server", 7) == 7
    with pytest.raises(ArgumentError, match="max_connections"):
        most_connections("Server", 0)
