import asyncio
import gzip
import zlib

import pytest

from exburn.serving.http.body import ClientLeft, discard_body, read_body
from exburn.serving.http.failures import RequestFailure
from exburn.serving.http.limits import RequestMemory


class Sender:
    """``receive`` of ASGI that gives parts, and then waits, or leaves."""

    def __init__(self, *parts, end=True, leaves=False):
        self.messages = [
            {"type": "http.request", "body": part, "more_body": True} for part in parts
        ]
        if end and self.messages:
            self.messages[-1]["more_body"] = False
        if leaves:
            self.messages.append({"type": "http.disconnect"})
        self.asked = 0

    async def __call__(self):
        self.asked += 1
        if self.messages:
            return self.messages.pop(0)
        await asyncio.Event().wait()


def read(sender, most=100, seconds=5.0, memory=None, **headers):
    headers = {k.replace("_", "-").encode(): v.encode() for k, v in headers.items()}
    memory = memory or RequestMemory(1 << 30)

    async def run():
        with memory.reserve() as reservation:
            return await read_body(
                headers, sender, reservation, most=most, seconds=seconds
            )

    return asyncio.run(run())


def status(*args, **options):
    with pytest.raises(RequestFailure) as caught:
        read(*args, **options)
    return caught.value.status


def test_bodies_come_whole_or_in_parts():
    assert read(Sender(b"abc")) == b"abc"
    assert read(Sender(b"ab", b"", b"c")) == b"abc"
    assert read(Sender(b"")) == b""


def test_a_body_that_is_too_long_is_not_read():
    sender = Sender(b"x" * 50, b"x" * 50, b"x", b"y", b"z")
    assert status(sender, content_length="101") == 413
    assert sender.asked == 0
    assert status(sender) == 413  # chunked: no length is said
    assert sender.asked == 3
    assert status(Sender(b"x" * 101)) == 413
    assert status(Sender(), content_length="9" * 5000) == 413
    assert len(read(Sender(b"x" * 100), content_length="100")) == 100


def test_who_sends_too_slowly_or_leaves_is_not_waited_for():
    assert status(Sender(b"x", end=False), seconds=0.01) == 408
    assert status(Sender(), seconds=0.01) == 408
    with pytest.raises(ClientLeft):
        read(Sender(b"x", end=False, leaves=True))
    with pytest.raises(ClientLeft):
        read(Sender(leaves=True))


def test_compressed_bodies_are_limited_by_what_is_in_them():
    body = b"x" * 100
    assert read(Sender(gzip.compress(body)), content_encoding="gzip") == body
    assert read(Sender(zlib.compress(body)), content_encoding="Deflate") == body
    bomb = gzip.compress(bytes(10_000_000))
    assert status(Sender(bomb), most=100_000, content_encoding="gzip") == 413
    for wrong in (b"no", gzip.compress(body)[:-9], gzip.compress(body) + b"more"):
        assert status(Sender(wrong), content_encoding="gzip") == 400
    assert status(Sender(body), content_encoding="br") == 415


def test_a_body_takes_memory_of_the_host():
    memory = RequestMemory(2400)
    memory.change(1)
    assert status(Sender(b"x" * 60, b"x" * 40), memory=memory) == 503
    assert memory.used == 1
    assert len(read(Sender(b"x" * 90), memory=memory)) == 90
    assert memory.used == 1


def test_what_is_refused_is_read_to_its_end():
    sender = Sender(*[b"x"] * 5)
    asyncio.run(discard_body(sender))
    assert sender.asked == 5
