"""Connections in the handshake of TLS: counted, timed, and handed over whole."""

import asyncio
import contextlib
import http.client
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from types import SimpleNamespace

import pytest
from tests.serving.http.conftest import tensor

from exburn.serving import Endpoint, Server
from exburn.serving.http.handshake import SecureServer

uvloop = pytest.importorskip("uvloop")
pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="makes a certificate"
)
FIRST = b"\x16\x03\x01\x02\x00\x01\x00"  # of a hello


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = "openssl req -x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256"
    command = [*command.split(), "-subj", "/CN=localhost", "-days", "1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [*command, "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    return {"ssl_certfile": certificate, "ssl_keyfile": key}


def client_context(files):
    return ssl.create_default_context(cafile=files["ssl_certfile"])


def connect(address, files):
    """A connection behind its handshake."""
    plain = socket.create_connection(address, 5)
    return client_context(files).wrap_socket(plain, server_hostname="127.0.0.1")


def get(server, files, path="/v2/health/live"):
    """The status of an answer, and how long it took."""
    began = time.monotonic()
    connection = http.client.HTTPSConnection(
        "127.0.0.1", server.port, timeout=5, context=client_context(files)
    )
    with contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().status, time.monotonic() - began


def connections(server):
    return server._engine.server_state.connections


@pytest.mark.parametrize("first", [b"", FIRST], ids=["nothing", "half a hello"])
def test_a_flood_of_unfinished_handshakes_shuts_nobody_out(mlp, files, first):
    with Server({"m": mlp}, port=0, max_connections=20, **files) as server:
        address, slow = ("127.0.0.1", server.port), []
        for _ in range(100):
            slow.append(socket.create_connection(address, 5))
            slow[-1].sendall(first)
        status, seconds = get(server, files)
        assert status == 200 and seconds < 2
        assert 10 < len(connections(server)) <= 20
        for connection in slow:
            connection.close()


@pytest.mark.parametrize(
    "first",
    [b"", FIRST, b"GET / HTTP/1.1\r\n\r\n"],
    ids=["nothing", "half a hello", "no TLS"],
)
def test_handshakes_end_in_time(mlp, files, first):
    options = {"read_timeout": "200 ms", **files}
    with Server({"m": mlp}, port=0, **options) as server:
        with socket.create_connection(("127.0.0.1", server.port), 5) as connection:
            began = time.monotonic()
            connection.sendall(first)
            with contextlib.suppress(ConnectionError):
                while connection.recv(1 << 16):  # perhaps an alert, and no HTTP
                    pass
            assert time.monotonic() - began < 2
        until = time.monotonic() + 2
        while connections(server) and time.monotonic() < until:
            time.sleep(0.01)
        assert not connections(server)
        assert get(server, files)[0] == 200


def test_where_all_wait_for_answers_a_handshake_is_refused(mlp, files):
    go = threading.Event()

    def wait(request):
        yield "first"
        go.wait(5)

    path = b"POST /v2/models/m/generate_stream HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    models = {"m": Endpoint(stream=wait)}
    with Server(models, port=0, max_connections=1, **files) as server:
        address = ("127.0.0.1", server.port)
        with connect(address, files) as busy:
            busy.sendall(path + b"Content-Length: 2\r\n\r\n{}")
            assert b"200 OK" in busy.recv(1 << 16)
            with pytest.raises(OSError):
                get(server, files)
            go.set()


def test_requests_come_whole_behind_the_handshake(mlp, files, rows):
    body = json.dumps({"inputs": [tensor("x", rows(2))]}).encode()
    body = b" " * 300_000 + body  # much of it comes with the handshake's end
    head = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close"
    head += b"\r\nContent-Length: %d\r\n\r\n" % len(body)
    with Server({"m": mlp}, port=0, **files) as server:
        for _ in range(5):
            with connect(("127.0.0.1", server.port), files) as secure:
                secure.sendall(head + body)
                answer = b""
                while part := secure.recv(1 << 16):
                    answer += part
            assert answer.startswith(b"HTTP/1.1 200"), answer[:300]


def test_the_server_ends_while_hands_are_shaken(mlp, files):
    with Server({"m": mlp}, port=0, **files) as server:
        address = ("127.0.0.1", server.port)
        slow = [socket.create_connection(address, 5) for _ in range(5)]
        began = time.monotonic()
    assert time.monotonic() - began < 5
    for connection in slow:
        connection.close()


class Echo(asyncio.Protocol):
    """Sends back what comes, and notes in which order it was called."""

    def __init__(self):
        self.calls = []

    def connection_made(self, transport):
        self.calls.append("made")
        self.transport = transport

    def data_received(self, data):
        self.calls.append("data")
        self.transport.write(data)

    def connection_lost(self, error):
        self.calls.append("lost")


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_each_loop_hands_over_in_order(loop, files):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files["ssl_certfile"], files["ssl_keyfile"])
    state, made = SimpleNamespace(connections=set()), []

    def make():
        made.append(Echo())
        return made[-1]

    async def run():
        loop = asyncio.get_running_loop()
        failures = []
        loop.set_exception_handler(lambda loop, told: failures.append(told))
        listening = socket.create_server(("127.0.0.1", 0))
        address = listening.getsockname()
        server = SecureServer(listening, state, context, make, 0.3, 10)
        for _ in range(20):
            reader, writer = await asyncio.open_connection(
                *address, ssl=client_context(files), server_hostname="127.0.0.1"
            )
            writer.write(b"first")
            assert await asyncio.wait_for(reader.readexactly(5), 5) == b"first"
            writer.close()
            with contextlib.suppress(ssl.SSLError):
                await writer.wait_closed()
        talked = len(made)
        for first in (b"no TLS at all\r\n\r\n", FIRST, b""):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(first)
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 5)
            writer.close()
        for _ in range(100):
            if not state.connections and all(e.calls[-1:] != ["data"] for e in made):
                break
            await asyncio.sleep(0.01)
        server.close()
        listening.close()
        assert failures == [] and state.connections == set()
        return talked

    with asyncio.Runner(loop_factory=loop) as runner:
        talked = runner.run(run())
    calls = [echo.calls for echo in made]
    assert calls[:talked] == [["made", "data", "lost"]] * 20
    assert calls[talked:] == [[]] * 3
