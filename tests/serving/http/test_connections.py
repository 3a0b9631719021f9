import asyncio
import json
import socket
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


HEAD = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize("sent", [b"", b"POS", HEAD], ids=["nothing", "word", "head"])
def test_connections_without_a_request_are_closed(server, sent):
    answer, seconds = read(server, sent)
    assert answer == b"" and 0.1 < seconds < 2


def test_half_a_body_is_answered(server):
    answer, seconds = read(server, HEAD + b"Content-Length: 100\r\n\r\n", b"{")
    assert b" 408 " in answer and seconds < 2


def test_slow_ones_are_answered_if_they_are_not_too_slow(server, rows):
    body = json.dumps({"inputs": [tensor("x", rows(1))]}).encode()
    head = HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
    parts = [head[:20], head[20:], body[:20], body[20:]]
    answer, _ = read(server, *parts, pause=0.03)
    assert b" 200 " in answer


@pytest.mark.long
def test_answers_that_nobody_reads_are_given_up():
    wide = Endpoint(lambda x: x + jnp.zeros(1 << 16), images=False)
    example = {"example": np.zeros((1, 1), np.float32), "batch_size": 64}
    options = {"read_timeout": "200 ms", "port": 0, "padding": [64], "burst": 1}
    body = json.dumps({"inputs": [tensor("x", np.zeros((64, 1)))]}).encode()
    head = HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
    with Server({"m": wide}, **example, **options) as server:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(head + body)  # for 17 MB, of which nothing is read
            connections = server._engine.server_state.connections
            time.sleep(0.1)
            assert len(connections) == 1
            until = time.monotonic() + 5
            while connections and time.monotonic() < until:
                time.sleep(0.01)
            assert not connections


def test_what_is_no_http_is_refused(server):
    answer, _ = read(server, b"\x16\x03\x01 no http\r\n\r\n")
    assert b" 400 " in answer


def test_a_body_that_is_too_long_is_answered_before_it_is_there(server):
    answer, seconds = read(server, HEAD + b"Content-Length: 99999999\r\n\r\n", b"{")
    assert b" 413 " in answer and b"connection: close" in answer and seconds < 1
