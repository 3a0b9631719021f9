import asyncio
import contextlib
import http.client
import json
import math
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from types import SimpleNamespace

import httpx
import pytest
import uvicorn
from tests.serving.http.conftest import tensor

from exburn.serving import Endpoint, Server
from exburn.serving.http.draining import DrainingServer, SecureServer
from exburn.serving.http.health import Health

DRAIN = 0.7  # seconds
PROGRAM = """
import sys, exburn
from exburn import layers
model = exburn.Sequential([exburn.Input((3,), name="x"), layers.Dense(2)])
server = exburn.serving.Server(
    {"m": model}, port=int(sys.argv[1]), drain=float(sys.argv[2]), batch_size=4,
    log_level="WARNING",
)
server.run()
print("after it")
"""


def engine(seconds):
    health = Health([], 1)
    config = uvicorn.Config(lambda: None, log_config=None)
    return DrainingServer(config, None, health, seconds), health


def test_a_signal_drains_and_a_second_one_stops():
    server, health = engine(60)
    server.handle_exit(signal.SIGTERM, None)
    assert health.draining and not asyncio.run(server.on_tick(1))
    server.handle_exit(signal.SIGTERM, None)
    assert asyncio.run(server.on_tick(1)) and not server.force_exit
    server.handle_exit(signal.SIGTERM, None)
    assert server.force_exit
    assert server._captured_signals == []  # uvicorn raises these again


def test_ctrl_c_does_not_wait():
    server, health = engine(60)
    server.handle_exit(signal.SIGINT, None)
    assert health.draining and asyncio.run(server.on_tick(1))


def test_while_it_drains_it_answers_but_is_not_ready(mlp, rows):
    server = Server({"m": mlp}, port=0).start()
    url = server.url
    body = {"inputs": [tensor("x", rows(2))]}
    with httpx.Client(base_url=url) as client:
        first = client.post("/v2/models/m/infer", json=body)
        assert "connection" not in first.headers
        server._engine.drain(60)
        for _ in range(3):
            answer = client.post("/v2/models/m/infer", json=body)
            assert answer.status_code == 200
            assert answer.headers["connection"] == "close"
        assert client.get("/v2/health/ready").status_code == 503
        assert client.get("/v2/health/live").status_code == 200
        assert client.get("/v2/models/m/ready").status_code == 503
    server.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)
    assert not mlp.closed  # it is not the server's


async def keep_asking(port, count):
    """Asks by one connection after the other until none is accepted.

    Between the last that the server accepts and the end of its listening socket another
    may come, which the system resets: it never was the server's.
    """
    body = json.dumps({"inputs": [tensor("x", [[1, 2, 3]])]}).encode()
    head = "POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\n"
    head += f"Content-Length: {len(body)}"
    request = head.encode() + b"\r\n\r\n" + body
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionError:  # refused, or reset
            return
        asked = 0
        while True:
            asked += 1
            writer.write(request)
            try:
                answer = await reader.readuntil(b"\r\n\r\n")
                await reader.readuntil(b"]}]}")
            except (asyncio.IncompleteReadError, ConnectionError):
                late = asked == 1 and time.monotonic() > count["drained at"]
                count["late" if late else "lost"] += 1
                writer.close()
                return
            count[answer.split()[1].decode()] += 1
            if b"connection: close" in answer:
                count["closed"] += 1
                writer.close()
                break


async def drain_under_load(port):
    arguments = [sys.executable, "-P", "-c", PROGRAM, str(port), str(DRAIN)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                await asyncio.sleep(0.05)
        count = Counter({"drained at": math.inf})
        clients = [asyncio.create_task(keep_asking(port, count)) for _ in range(16)]
        while count["200"] < 64:
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        count["drained at"] = time.monotonic() + DRAIN
        await asyncio.gather(*clients)
        said, _ = await asyncio.to_thread(process.communicate, timeout=60)
    return count, said, process.returncode


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.mark.parametrize("times", [1, 50])
def test_sigterm_under_load_loses_no_request(times):
    for _ in range(times):
        count, said, returncode = asyncio.run(drain_under_load(free_port()))
        assert set(count) <= {"200", "closed", "late", "drained at"}, count
        assert count["200"] > count["closed"] >= 16 and count["late"] < 3
        assert (said, returncode) == ("after it\n", 0)


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
