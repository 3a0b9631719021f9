import asyncio
import json
import socket
import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest
from tests.serving.http.conftest import tensor

from exburn.serving import Endpoint, Server
from exburn.serving.http.connections import HeadHolder


class Transport:
    """Notes what is written, call by call."""

    def __init__(self):
        self.calls = []

    def write(self, data):
        self.calls.append(data)

    def writelines(self, parts):
        self.calls.append(b"".join(parts))

    def close(self):
        self.calls.append("closed")

    def is_closing(self):
        return self.calls[-1:] == ["closed"]

    peer = 7


def test_a_head_goes_with_its_body_but_never_waits_for_it():
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"

    async def run():
        transport = Transport()
        held = HeadHolder(transport, asyncio.get_running_loop())
        held.write(head)
        held.write(b"{}")
        await asyncio.sleep(0)
        held.write(head)  # of an answer without a body
        await asyncio.sleep(0)
        held.write(b"part")
        held.write(head)
        held.close()
        await asyncio.sleep(0)
        assert held.is_closing() and held.peer == 7
        return transport.calls

    assert asyncio.run(run()) == [head + b"{}", head, b"part", head, "closed"]


@pytest.fixture(scope="module")
def server(mlp):
    with Server({"m": mlp}, port=0, read_timeout="200 ms") as server:
        yield server


def read(server, *parts, pause=0.0):
    """What comes back for some bytes until the connection is closed, and when."""
    with socket.create_connection(("127.0.0.1", server.port), 5) as connection:
        began = time.monotonic()
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
            if b"content-length: " in answer and b"}" in answer:
                break
    return answer, time.monotonic() - began


HEAD = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize("sent", [b"", b"POS", HEAD], ids=["nothing", "word", "head"])
def test_connections_without_a_request_are_closed(server, sent):
    answer, seconds = read(server, sent)
    assert 0.1 < seconds < 2
    assert b" 408 " in answer and b'{"error":' in answer if sent else answer == b""


def test_half_a_body_is_answered(server):
    answer, seconds = read(server, HEAD + b"Content-Length: 100\r\n\r\n", b"{")
    assert b" 408 " in answer and seconds < 2


def test_slow_ones_are_answered_if_they_are_not_too_slow(server, rows):
    body = json.dumps({"inputs": [tensor("x", rows(1))]}).encode()
    head = HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
    parts = [head[:20], head[20:], body[:20], body[20:]]
    answer, _ = read(server, *parts, pause=0.03)
    assert b" 200 " in answer


WIDE = {"name": "x", "datatype": "FP32", "shape": [64, 1], "data": [0.0] * 64}
WIDE = {"inputs": [WIDE], "parameters": {"binary_data_output": True}}


@pytest.fixture
def wide():
    """A server whose answers to ``WIDE`` have 17 MB, and memory for one of them."""
    model = Endpoint(lambda x: x + jnp.zeros(1 << 16), images=False)
    example = {"example": np.zeros((1, 1), np.float32), "batch_size": 64}
    options = {"read_timeout": "300 ms", "port": 0, "padding": [64], "burst": 1}
    with Server({"m": model}, max_memory="50 MB", **example, **options) as server:
        yield server


def test_answers_that_nobody_reads_are_given_up_and_their_memory_is_counted(wide):
    body = json.dumps(WIDE).encode()
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", wide.port))
        connection.sendall(request)  # nothing of the answer is read
        connections = wide._engine.server_state.connections
        memory = wide._inference.memory
        until = time.monotonic() + 5
        while memory.used < 33_000_000 and time.monotonic() < until:
            time.sleep(0.01)
        assert len(connections) == 1
        assert b" 503 " in read(wide, request)[0]
        while connections and time.monotonic() < until:
            time.sleep(0.01)
        assert not connections and memory.used == 0


def test_an_answer_that_is_too_large_is_not_computed(wide):
    many = {**WIDE["inputs"][0], "shape": [256, 1], "data": [0.0] * 256}
    body = json.dumps({"inputs": [many]}).encode()
    answer, _ = read(wide, HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert b" 413 " in answer and b"memory" in answer
    assert wide._registry.get("m").serving.statistics().batches == 0


def test_what_is_no_http_is_refused(server):
    answer, _ = read(server, b"\x16\x03\x01 no http\r\n\r\n")
    assert b" 400 " in answer


def test_a_body_that_is_too_long_is_answered_before_it_is_there(server):
    answer, seconds = read(server, HEAD + b"Content-Length: 99999999\r\n\r\n", b"{")
    assert b" 413 " in answer and b"connection: close" in answer and seconds < 1


# ---------------------------------------------------------------------- what they send
LAST = b"Connection: close\r\n"
GET = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n"
BODY = json.dumps({"inputs": [tensor("x", np.ones((1, 3)))]}).encode()
SIZED = HEAD + b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n"
END = b"0\r\n\r\n"
UPGRADE = (
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n"
)


def chunks(body, size):
    parts = (body[i : i + size] for i in range(0, len(body), size))
    return b"".join(b"%x\r\n" % len(part) + part + b"\r\n" for part in parts)


def target(text, method=b"GET"):
    return method + b" " + text + b" HTTP/1.1\r\nHost: localhost\r\n" + LAST + b"\r\n"


def headers(count, text=b"1"):
    lines = b"".join(b"A%d: %b\r\n" % (i, text) for i in range(count - 2))
    return GET + LAST + lines + b"\r\n"


def answers(server, *parts, half=False, pause=0.01):
    """Status and body of each answer, until the connection is closed."""
    received = b""
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        try:
            for part in parts:
                connection.sendall(part)
                time.sleep(pause if len(parts) > 1 else 0)
            if half:
                connection.shutdown(socket.SHUT_WR)
        except ConnectionError:  # it was refused meanwhile
            pass
        while part := connection.recv(1 << 16):
            received += part
    results = []
    while received:
        head, received = received.split(b"\r\n\r\n", 1)
        lines = head.decode().lower().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:])
        if lines[0].startswith("http/1.1 100"):
            continue
        length = int(fields["content-length"])
        results.append((int(lines[0].split()[1]), received[:length]))
        received = received[length:]
    return results


SENT = {
    "a request": (GET + LAST + b"\r\n", 200),
    "HTTP/1.0": (b"GET /v2 HTTP/1.0\r\nHost: localhost\r\n\r\n", 200),
    "HTTP/0.9": (b"GET /v2\r\n\r\n", 505),
    "HTTP/2.0": (b"GET /v2 HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "an unknown method": (target(b"/v2", b"FOO"), 400),
    "TRACE": (target(b"/v2", b"TRACE"), 405),
    "CONNECT": (target(b"localhost:80", b"CONNECT"), 400),
    "a URL": (target(b"http://localhost/v2"), 200),
    "a URL in capitals": (target(b"HTTPS://LOCALHOST:1/v2"), 200),
    "a URL without a path": (target(b"http://localhost?a=/b"), 200),
    "a URL of another host": (target(b"http://evil.example/v2"), 400),
    "a URL with a user": (target(b"http://me@localhost/v2"), 400),
    "a URL without a host": (target(b"http:///v2"), 400),
    "a URL of another scheme": (target(b"ftp://localhost/v2"), 400),
    "a host as path": (target(b"//localhost/v2"), 404),
    "a star": (target(b"*"), 400),
    "OPTIONS *": (target(b"*", b"OPTIONS"), 404),
    "no path": (target(b"v2"), 400),
    "a fragment": (target(b"/v2#x"), 200),
    "an encoded path": (target(b"/%76%32"), 200),
    "a path up": (target(b"/v2/models/%2e%2e/%2e%2e"), 404),
    **{f"path {p}": (target(b"/v2/" + p), 404) for p in (b"%", b"%zz", b"%00", b"%ff")},
    "no host": (b"GET /v2 HTTP/1.1\r\n\r\n", 400),
    "no host in HTTP/1.0": (b"GET /v2 HTTP/1.0\r\n\r\n", 400),
    "two hosts": (GET + b"Host: localhost\r\n\r\n", 400),
    "100 headers": (headers(100), 200),
    "101 headers": (headers(101), 431),
    "a million headers": (headers(1_000_000), 431),
    "60 KB of headers": (headers(3, b"x" * 60_000), 200),
    "66 KB of headers": (headers(3, b"x" * 66_000), 431),
    "10 MB of a header": (headers(3, b"x" * 10_000_000), 431),
    "10 MB of a path": (target(b"/" + b"x" * 10_000_000), 431),
    "empty lines first": (b"\r\n\r\n" + GET + LAST + b"\r\n", 200),
    "10 MB of empty lines": (b"\r\n" * 5_000_000, 431),
    "zeros": (bytes(1000), 400),
    "folded headers": (GET + b"A: 1\r\n 2\r\n\r\n", 400),
    "a space before the colon": (GET + b"A : 1\r\n\r\n", 400),
    "lines without CR": (GET.replace(b"\r", b"") + b"\n", 400),
    "a body": (SIZED + LAST + b"\r\n" + BODY, 200),
    "two lengths": (SIZED + SIZED.split(b"\r\n", 2)[2] + b"\r\n" + BODY, 400),
    **{
        f"length {n}": (HEAD + b"Content-Length: " + n + b"\r\n\r\n1", 400)
        for n in (b"-1", b"+1", b"0x1", b"1,1", b"1e0", b"", b"9" * 20)
    },
    "length and chunks": (SIZED + b"Transfer-Encoding: chunked\r\n\r\n" + END, 400),
    "chunks and length": (CHUNKED + b"Content-Length: 5\r\n\r\n" + END, 400),
    **{
        f"encoding {e}": (
            HEAD + LAST + b"Transfer-Encoding: " + e + b"\r\n\r\n" + END,
            400,
        )
        for e in (
            *(b"gzip, chunked", b"chunked, gzip", b"chunked, chunked", b"identity"),
            *(b"gzip", b"", b"xchunked", b"chunked;q=1"),
        )
    },
    "two encodings": (CHUNKED + b"Transfer-Encoding: chunked\r\n\r\n" + END, 400),
    "chunks in HTTP/1.0": (CHUNKED.replace(b"1.1", b"1.0") + b"\r\n" + END, 400),
    "chunks": (CHUNKED + LAST + b"\r\n" + chunks(BODY, 7) + END, 200),
    "chunks of a byte": (CHUNKED + LAST + b"\r\n" + chunks(BODY, 1) + END, 200),
    "a million chunks": (CHUNKED + b"\r\n" + b"1\r\n \r\n" * 1_000_000 + END, 400),
    "a long extension": (CHUNKED + b"\r\n1;" + b"x" * 5_000_000 + b"\r\n1\r\n", 400),
    "short extensions": (CHUNKED + b"\r\n" + b"1;abcdef\r\n \r\n" * 50_000 + END, 400),
    "trailers": (
        CHUNKED + LAST + b"\r\n" + chunks(BODY, 99) + b"0\r\nX-API-Key: a\r\n\r\n",
        200,
    ),
    "a million trailers": (
        CHUNKED + b"\r\n" + chunks(BODY, 99) + b"0\r\n" + b"A: 1\r\n" * 1_000_000,
        400,
    ),
    "a long trailer": (
        CHUNKED + b"\r\n" + chunks(BODY, 99) + b"0\r\nA: " + b"x" * 5_000_000,
        400,
    ),
    "no size of a chunk": (CHUNKED + b"\r\nzz\r\n", 400),
    "a chunk that is longer": (CHUNKED + b"\r\n1\r\nab\r\n" + END, 400),
    "a chunk of 2**64": (CHUNKED + b"\r\n10000000000000000\r\n", 400),
    "another protocol": (SIZED + UPGRADE + b"\r\n" + BODY, 200),
    "another protocol in chunks": (
        CHUNKED + UPGRADE + b"\r\n" + chunks(BODY, 9) + END,
        200,
    ),
}


@pytest.fixture(scope="module")
def patient(mlp):
    with Server({"m": mlp}, port=0) as server:
        yield server


@pytest.mark.parametrize("what", SENT)
def test_what_is_sent_has_its_status(patient, what):
    sent, status = SENT[what]
    ((code, body),) = answers(patient, sent)
    assert code == status, body
    assert status == 200 or set(json.loads(body)) == {"error"}


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    "first", [SIZED + b"\r\n" + BODY, CHUNKED + b"\r\n" + chunks(BODY, 9) + END]
)
def test_requests_that_come_at_once_are_answered_in_turn(patient, first, size):
    """However they are cut into packets."""
    sent = first * 2 + GET + b"\r\n" + GET + LAST + b"\r\n"
    parts = [sent[i : i + size] for i in range(0, len(sent), size)]
    results = answers(patient, *parts, pause=0.0002)
    assert [status for status, _ in results] == [200] * 4
    assert results[0] == results[1] and results[2] == results[3]
    assert b"outputs" in results[0][1] and b"extensions" in results[2][1]


def test_what_waits_behind_a_request_is_not_parsed(patient):
    """Of 100,000 requests at once, one at a time takes memory."""
    sent = []
    with socket.create_connection(("127.0.0.1", patient.port), 10) as connection:
        connection.setblocking(False)
        flood, deadline = (GET + b"\r\n") * 5000, time.monotonic() + 0.3
        while time.monotonic() < deadline:
            try:
                sent.append(connection.send(flood))
            except BlockingIOError:
                time.sleep(0.01)
            for protocol in [*patient._engine.server_state.connections]:
                assert len(protocol.pipeline) <= 1
                assert sum(map(len, protocol._backlog)) <= 1 << 20
    assert sum(sent) > 1 << 18


def test_what_is_no_request_waits_for_the_answer_before_it(patient):
    for first in (SIZED + b"\r\n" + BODY, CHUNKED + b"\r\n" + chunks(BODY, 9) + END):
        results = answers(patient, first + b"no request\r\n\r\n")
        assert results[0][0] == 200 and b"outputs" in results[0][1]
        assert [status for status, _ in results[1:]] in ([], [400])


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (GET, 400),
        (SIZED + b"\r\n" + BODY[:-1], 400),
        (CHUNKED + b"\r\n5\r\nab", 400),
        (b"", None),
    ],
)
def test_half_a_request_that_ends_is_told_so(patient, sent, status):
    results = answers(patient, sent, half=True)
    assert [code for code, _ in results] == ([] if status is None else [status])


def test_nobody_is_asked_for_a_body_that_is_refused(patient):
    expects = HEAD + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n"
    answer, _ = read(patient, expects)
    assert b" 413 " in answer and b"100 Continue" not in answer


# ---------------------------------------------------------------------- who is slow
SLOW = {
    "nothing": (b"", b""),
    "half a head": (GET, b""),
    "a head that drips": (GET, b"A"),
    "empty lines that drip": (b"", b"\r\n"),
    "empty lines behind an answer": (GET + b"\r\n", b"\r\n"),
    "half a body": (SIZED + b"\r\n{", b""),
    "a body that drips": (HEAD + b"Content-Length: 999999\r\n\r\n", b" "),
    "chunks that drip": (CHUNKED + b"\r\n", b"1\r\n \r\n"),
    "a chunk's size that drips": (CHUNKED + b"\r\n", b"0"),
    "a body behind 404": (
        b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n",
        b" ",
    ),
    "chunks behind 404": (
        b"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"1\r\n \r\n",
    ),
    "a body behind 413": (HEAD + b"Content-Length: 99999999\r\n\r\n", b" "),
    "a body of GET": (GET + b"Content-Length: 99999\r\n\r\n", b" "),
    "headers behind 431": (headers(2)[:-2] + b"A: 1\r\n" * 200, b"A"),
}


@pytest.mark.parametrize("what", SLOW)
def test_who_is_slow_is_closed_in_time(server, what, monkeypatch):
    monkeypatch.setattr("exburn.serving.http.body._DISCARD_SECONDS", 0.2)
    monkeypatch.setattr("exburn.serving.http.connections._LINGER", 0.2)
    first, drip = SLOW[what]
    with socket.create_connection(("127.0.0.1", server.port), 5) as connection:
        connection.sendall(first)
        connection.settimeout(0.02)
        began, answer = time.monotonic(), b""
        while time.monotonic() - began < 5:
            try:
                connection.sendall(drip)
                part = connection.recv(1 << 16)
                answer += part
                if not part:
                    break
            except TimeoutError:
                pass
            except ConnectionError:
                break
        assert time.monotonic() - began < 3, answer
    until = time.monotonic() + 2
    while server._engine.server_state.connections and time.monotonic() < until:
        time.sleep(0.01)
    assert not server._engine.server_state.connections


@pytest.mark.parametrize("what", SLOW)
def test_slow_ones_make_room_for_others(mlp, what):
    """Three times as many as there may be, and one who asks gets its answer."""
    first, drip = SLOW[what]
    with Server({"m": mlp}, port=0, max_connections=20) as server:
        address, slow = ("127.0.0.1", server.port), []
        for _ in range(60):
            slow.append(socket.create_connection(address, 5))
            slow[-1].sendall(first)
        assert len(server._engine.server_state.connections) <= 21
        began = time.monotonic()
        assert answers(server, SIZED + LAST + b"\r\n" + BODY)[0][0] == 200
        assert time.monotonic() - began < 1
        for connection in slow:
            connection.close()


def test_who_has_many_connections_makes_room_for_who_has_few(mlp):
    """One slow client stays, whatever another address opens."""
    with Server({"m": mlp}, host="0.0.0.0", port=0, max_connections=5) as server:

        def connect(address):
            source = (address, 0)
            return socket.create_connection(("127.0.0.1", server.port), 5, source)

        slow = connect("127.0.0.2")
        slow.sendall(SIZED)
        flood = [connect("127.0.0.3") for _ in range(20)]
        slow.sendall(b"\r\n" + BODY)
        assert b"200 OK" in slow.recv(1 << 16)
        for connection in (slow, *flood):
            connection.close()


def test_where_all_wait_for_answers_one_more_is_refused(mlp):
    go = threading.Event()

    def wait(request):
        yield "first"
        go.wait(5)

    models = {"m": Endpoint(stream=wait)}
    path = b"POST /v2/models/m/generate_stream HTTP/1.1\r\nHost: localhost\r\n"
    with Server(models, port=0, max_connections=2) as server:
        address, busy = ("127.0.0.1", server.port), []
        for _ in range(2):
            busy.append(socket.create_connection(address, 5))
            busy[-1].sendall(path + b"Content-Length: 2\r\n\r\n{}")
            assert b"200 OK" in busy[-1].recv(1 << 16)
        ((status, body),) = answers(server, b"")
        assert status == 503 and b"connections" in body
        go.set()
        for connection in busy:
            connection.close()


def test_what_is_closed_is_gone_though_nobody_reads():
    """An answer that is smaller than a buffer that pauses ends so."""

    async def run():
        aborted = asyncio.Event()
        transport = Transport()
        transport.abort = aborted.set
        held = HeadHolder(transport, asyncio.get_running_loop(), 0.01)
        held.close()
        await asyncio.wait_for(aborted.wait(), 5)
        other = Transport()
        other.abort = lambda: other.calls.append("aborted")
        held = HeadHolder(other, asyncio.get_running_loop(), 0.01)
        held.close()
        held.forget()
        await asyncio.sleep(0.03)
        return other.calls

    assert asyncio.run(run()) == ["closed"]


def test_heads_without_an_end_take_no_memory(patient):
    """And hold up nobody: each of these once took 600 MB, and a minute of the loop."""

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    before, waits = resident(), []
    flood = [GET + b"A: " + b"x" * (1 << 20), GET + b"A: x\r\n" * (1 << 17)]
    for part in flood * 4:
        with socket.create_connection(("127.0.0.1", patient.port), 5) as connection:
            connection.setblocking(False)
            for _ in range(50):
                try:
                    connection.send(part)
                except BlockingIOError:
                    break
                except ConnectionError:
                    break
            began = time.monotonic()
            assert answers(patient, GET + LAST + b"\r\n")[0][0] == 200
            waits.append(time.monotonic() - began)
    assert resident() - before < 32 << 20 and max(waits) < 0.5
