import asyncio
import json
import math
import signal
import socket
import subprocess
import sys
import time
from collections import Counter

import httpx
import pytest
import uvicorn
from tests.serving.http.conftest import tensor

from exburn.serving import Server
from exburn.serving.http.draining import DrainingServer
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
