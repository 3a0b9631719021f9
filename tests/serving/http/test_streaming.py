import asyncio
import json
import threading
import time

import pytest
from tests.serving.http.conftest import Client, tensor

from exburn.errors import DataError
from exburn.serving import Endpoint, Server

PATH = "/v2/models/{}/generate_stream"


def count(request):
    if "words" not in request:
        raise DataError("count", "words are needed")
    for i in range(request["words"]):
        yield f"word {i} " if i else {"first": True, "at": i}


async def count_later(request):
    for i in range(request["words"]):
        await asyncio.sleep(0)
        yield str(i)


def fail(request):
    yield "one"
    raise ZeroDivisionError("secret")


def fail_at_once(request):
    yield {"value": {1, 2}}  # no JSON


def nothing(request):
    return iter([])


class Slow:
    """Waits for ever behind the first part; knows whether it was closed."""

    def __init__(self):
        self.closed, self.go = threading.Event(), threading.Event()

    def stream(self, request):
        try:
            yield "first"
            while not self.go.wait(0.01):
                yield "more"
            time.sleep(5)
        finally:
            self.closed.set()


@pytest.fixture(scope="module")
def slow():
    return Slow()


@pytest.fixture(scope="module")
def client(mlp, slow):
    streams = [count, count_later, fail, fail_at_once, nothing]
    models = {f.__name__: Endpoint(stream=f) for f in streams}
    models |= {"slow": slow, "both": Endpoint(mlp, stream=count), "mlp": mlp}
    return Client(Server(models, max_streams=2, timeout="300 ms").asgi())


def events(answer):
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = []
    for event in answer.text.split("\n\n")[:-1]:
        *kind, data = event.split("\n")
        found.append((kind, json.loads(data.removeprefix("data: "))))
    return found


@pytest.mark.parametrize("name", ["count", "count_later", "both"])
def test_parts_are_events(client, name):
    answer = client("POST", PATH.format(name), json={"words": 3})
    parts = [part for _, part in events(answer)]
    assert len(parts) == 3
    assert all(part.pop("model_name") == name for part in parts)
    assert all(part.pop("model_version") == "1" for part in parts)
    last = "2" if name == "count_later" else "word 2 "
    assert parts[-1] == {"text_output": last}
    if name != "count_later":
        assert parts[0] == {"first": True, "at": 0}
    assert events(client("POST", PATH.format("nothing"), json={})) == []


@pytest.mark.parametrize(
    ("name", "content", "status"),
    [
        ("count", b"{}", 400),
        ("count", b"[]", 400),
        ("count", b"{", 400),
        ("mlp", b"{}", 400),
        ("none", b"{}", 404),
        ("fail_at_once", b"{}", 500),
    ],
)
def test_what_fails_before_the_first_part_has_its_status(client, name, content, status):
    for _ in range(3):  # none of them goes on running
        answer = client("POST", PATH.format(name), content=content)
        assert answer.status_code == status and set(answer.json()) == {"error"}


def test_what_fails_later_is_the_last_event(client):
    first, last = events(client("POST", PATH.format("fail"), json={}))
    assert first[1]["text_output"] == "one"
    assert last[0] == ["event: error"] and "secret" not in last[1]["error"]


def test_what_only_generates_is_ready_but_has_no_inference(client, rows):
    assert client("GET", "/v2/models/count/ready").status_code == 200
    assert client("GET", "/v2/models/count").json()["inputs"] == []
    answer = client(
        "POST", "/v2/models/count/infer", json={"inputs": [tensor("x", [1])]}
    )
    assert answer.status_code == 400 and "generate_stream" in answer.text
    assert client.infer(rows(1), "both").status_code == 200
    paths = client("GET", "/openapi.json").json()["paths"]
    assert "/v2/models/both/infer" in paths and "/v2/models/count/infer" not in paths
    assert "/v2/models/count/generate_stream" in paths
    assert client("GET", "/metrics").status_code == 200


class Listener:
    """Asks for a stream by ASGI, and leaves when it is told to."""

    def __init__(self, name):
        self.leaves, self.sent = asyncio.Event(), []
        self.asked = False
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": PATH.format(name),
            "headers": [],
            "asgi": {"spec_version": "2.3", "version": "3.0"},
        }

    async def receive(self):
        if self.asked:
            await self.leaves.wait()
            return {"type": "http.disconnect"}
        self.asked = True
        return {"type": "http.request", "body": b"{}"}

    async def send(self, message):
        self.sent.append(message)

    async def listen(self, app):
        await app(self.scope, self.receive, self.send)


def test_who_leaves_stops_it_and_too_many_wait(client, slow):
    async def run():
        listeners = [Listener("slow"), Listener("slow")]
        tasks = [asyncio.create_task(each.listen(client.app)) for each in listeners]
        while min(len(each.sent) for each in listeners) < 5:
            await asyncio.sleep(0.01)
        asked = [await client.ask("POST", PATH.format("count"), json={"words": 1})]
        for each in listeners:
            each.leaves.set()
        await asyncio.gather(*tasks)
        asked.append(await client.ask("POST", PATH.format("count"), json={"words": 1}))
        return [answer.status_code for answer in asked]

    assert asyncio.run(run()) == [429, 200]
    assert slow.closed.wait(5)


class Watched:
    """Something to draw from that says at what it is, and when it was closed.

    Args:
        parts: What it does for each part: a number of seconds to work, or a text.
    """

    def __init__(self, *parts):
        self.parts, self.at = list(parts), 0
        self.busy, self.closed = threading.Event(), threading.Event()

    def work(self):
        if self.at == len(self.parts):
            raise StopIteration
        self.at += 1
        part = self.parts[self.at - 1]
        if isinstance(part, str):
            return part
        self.busy.set()
        time.sleep(part)
        return "late"

    def generator(self, request):
        try:
            while self.at < len(self.parts):
                yield self.work()
        finally:
            self.closed.set()

    def iterator(self, request):
        watched = self

        class Iterator:
            def __iter__(self):
                return self

            def __next__(self):
                return watched.work()

            def close(self):
                watched.closed.set()

        return Iterator()

    def slow_start(self, request):
        source = self.iterator(request)
        self.work()
        return source

    async def coroutines(self, request):
        try:
            while self.at < len(self.parts):
                part = self.parts[self.at]
                self.at += 1
                if isinstance(part, float):
                    self.busy.set()
                    await asyncio.sleep(part)
                yield str(part)
        finally:
            self.closed.set()

    def async_iterator(self, request):
        source = self.coroutines(request)

        class Iterator:
            def __aiter__(self):
                return self

            async def __anext__(self):
                return await anext(source)

            async def aclose(self):
                await source.aclose()

        return Iterator()


SOURCES = ["generator", "iterator", "coroutines", "async_iterator"]
PARTS = {
    "at the first part": [0.1, "more"],
    "at a later part": ["one", 0.1, "more"],
    "at a part that takes too long": ["one", 0.4, "more"],
    "between parts": ["one"] * 1000,
}


@pytest.mark.parametrize("when", PARTS)
@pytest.mark.parametrize("source", SOURCES)
def test_what_a_client_left_is_closed_behind_the_part_at_work(source, when):
    watched = Watched(*PARTS[when])
    models = {"m": Endpoint(stream=getattr(watched, source))}
    server = Server(models, timeout="200 ms")

    async def run():
        listener = Listener("m")
        task = asyncio.create_task(listener.listen(server.asgi()))
        while not (watched.busy.is_set() or len(listener.sent) > 5):
            await asyncio.sleep(0.001)
        if "too long" not in when:
            listener.leaves.set()
        await task
        return listener.sent

    sent = asyncio.run(run())
    assert watched.closed.wait(5) and watched.at < len(watched.parts)
    assert bool(sent) == (when != "at the first part")
    server.close()


def test_what_a_client_left_while_it_was_begun_is_closed():
    watched = Watched(0.1, "more")
    server = Server({"m": Endpoint(stream=watched.slow_start)})

    async def run():
        listener = Listener("m")
        task = asyncio.create_task(listener.listen(server.asgi()))
        while not watched.busy.is_set():
            await asyncio.sleep(0.001)
        listener.leaves.set()
        await task

    asyncio.run(run())
    assert watched.closed.wait(5) and watched.at == 1
    server.close()


@pytest.mark.parametrize("when", ["at a later part", "between parts"])
@pytest.mark.parametrize("source", ["generator", "iterator"])
def test_a_server_that_ends_closes_what_its_clients_listen_to(source, when):
    watched = Watched(*PARTS[when])
    server = Server({"m": Endpoint(stream=getattr(watched, source))})

    async def run():
        listener = Listener("m")
        task = asyncio.create_task(listener.listen(server.asgi()))
        while not (watched.busy.is_set() or len(listener.sent) > 5):
            await asyncio.sleep(0.001)
        server.close()
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(run())
    assert watched.closed.wait(5)


def test_a_source_that_fails_while_it_is_closed_is_in_the_log(caplog):
    def stream(request):
        try:
            yield from map(str, range(1000))
        finally:
            raise ZeroDivisionError("at the end")

    server = Server({"m": Endpoint(stream=stream)})

    async def run():
        listener = Listener("m")
        task = asyncio.create_task(listener.listen(server.asgi()))
        while len(listener.sent) < 3:
            await asyncio.sleep(0.001)
        listener.leaves.set()
        await task

    asyncio.run(run())
    until = time.monotonic() + 5
    while "at the end" not in caplog.text and time.monotonic() < until:
        time.sleep(0.01)
    assert "a stream failed while it was closed" in caplog.text
    server.close()


def test_a_part_that_does_not_come_is_given_up(client, slow):
    slow.closed.clear()
    slow.go.set()
    first, last = events(client("POST", PATH.format("slow"), json={}))
    assert first[1]["text_output"] == "first"
    assert "time" in last[1]["error"]
