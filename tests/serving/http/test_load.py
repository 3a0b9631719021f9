"""Many clients at once, some of them bad, and bytes that nobody meant to send."""

import asyncio
import gzip
import json
import random
import re
import socket
import time
from collections import Counter

import httpx
import numpy as np
import pytest
from tests.serving.http.conftest import FAST, tensor

import exburn
from exburn import layers
from exburn.serving import Server

POOL, MOST_ROWS, CLIENTS = 400, 80, 64


@pytest.fixture(scope="module")
def served():
    """A model of 8 numbers, what requests are cut from, and what is right for it."""
    scores = layers.Dense(3, name="scores")
    hidden = layers.Dense(16, activation="relu")
    model = exburn.Sequential([exburn.Input((8,), name="x"), hidden, scores])
    model.compile(seed=0)
    pool = np.random.default_rng(0).standard_normal((POOL, 8)).astype(np.float32)
    options = {"batch_size": 32, "padding": [8, 32], "burst": 1}
    server = Server(
        {"m": model}, port=0, max_rows=MOST_ROWS, check_numerics=True, **options
    )
    with server:
        yield server, pool, model.predict(pool, verbose=0)


# ---------------------------------------------------------------------- requests
def as_json(x, **changes):
    entry = tensor("x", x) | changes
    return json.dumps({"inputs": [entry]}).encode(), None


def as_binary(x, size=None):
    size = x.nbytes if size is None else size
    entry = {"name": "x", "datatype": "FP32", "shape": x.shape}
    entry["parameters"] = {"binary_data_size": size}
    head = {"inputs": [entry], "parameters": {"binary_data_output": True}}
    head = json.dumps(head).encode()
    return head + x.tobytes(), len(head)


def with_nan(x):
    return as_binary(np.where(np.arange(8) == 3, np.float32(np.nan), x))


def truncated(x):
    return as_json(x)[0][:-7], None


def huge(x):
    return as_json(x, data=[1e39] * x.size)


# How a request is spoiled, its status, and what its caller is told.
BAD = (
    (lambda x: as_json(x[:, :5]), 400, "has the shape [-1, 8]"),
    (lambda x: as_json(x, datatype="INT32"), 400, "is FP32, received 'INT32'"),
    (lambda x: as_json(x, name="y"), 400, "no input 'y'"),
    (lambda x: as_json(x, data=["1"] * x.size), 400, "must hold numbers"),
    (lambda x: as_json(x, data=[1.0] * (x.size - 1)), 400, "values for the shape"),
    (lambda x: as_binary(x, x.nbytes - 4), 400, "bytes, received"),
    (lambda x: as_binary(x, x.nbytes + 4), 400, "bytes are left in the body"),
    (lambda x: as_json(np.zeros((MOST_ROWS + 1, 8))), 413, "rows"),
    (with_nan, 400, "NaN"),
    (truncated, 400, "no JSON"),
    (huge, 400, "beyond what FP32 holds"),
)


def draw(number, pool, expected):
    """A request, its status, and what is to come back."""
    rng = random.Random(number)
    rows = rng.randint(1, MOST_ROWS)
    start = rng.randrange(POOL - rows)
    x = pool[start : start + rows]
    if rng.random() < 0.05:
        spoil, status, message = rng.choice(BAD)
        return spoil(x), status, message
    kind = as_json if rng.random() < 0.5 else as_binary
    return kind(x), 200, expected[start : start + rows]


async def ask(reader, writer, body, length):
    """Status and body of the answer."""
    head = "POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\n"
    if length is not None:
        head += f"Inference-Header-Content-Length: {length}\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
    headers = dict(line.split(": ") for line in lines[1:-2])
    answer = await reader.readexactly(int(headers["content-length"]))
    at = headers.get("inference-header-content-length")
    return int(lines[0].split()[1]), answer, None if at is None else int(at)


def is_right(status, answer, at, right):
    """Whether an answer is the one that was asked for."""
    if status != 200:
        return right in json.loads(answer)["error"]
    if at is None:
        values = json.loads(answer)["outputs"][0]["data"]
    else:
        values = np.frombuffer(answer[at:], "<f4")
    values = np.reshape(values, (-1, 3))
    return values.shape == right.shape and np.allclose(values, right, 2e-5, 2e-6)


async def client(numbers, port, pool, expected, seen):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in numbers:
        (body, length), status, right = draw(number, pool, expected)
        got, answer, at = await ask(reader, writer, body, length)
        good = got == status and is_right(got, answer, at, right)
        seen[got if good else f"WRONG {number}: {answer[:200]}"] += 1
        seen["rows"] += len(right) if status == 200 else 0
    writer.close()


def memory():
    """Bytes that the process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize("count", [1_000, 100_000])
def test_every_request_gets_its_own_answer(served, count):
    """Of 64 clients, 5 % bad: none is lost or mixed up, and the counters are right."""
    server, pool, expected = served
    before, levels, seen = metrics(server), [], Counter()

    async def clients(numbers):
        shares = (numbers[i::CLIENTS] for i in range(CLIENTS))
        tasks = [client(share, server.port, pool, expected, seen) for share in shares]
        await asyncio.gather(*tasks)

    for part in np.array_split(np.arange(count), 5):
        asyncio.run(clients(part.tolist()))
        levels.append(memory())
    rows = seen.pop("rows")
    assert set(seen) == {200, 400, 413} and seen.total() == count
    assert 0.03 * count < seen[400] + seen[413] < 0.07 * count
    assert levels[-1] - levels[1] < 64 << 20, levels
    after = metrics(server)
    counted = {name: after[name] - before.get(name, 0) for name in after}
    for status in (200, 400, 413):
        assert counted["requests_total", "infer", str(status)] == seen[status]
    assert counted["rows_total",] == rows
    assert server._registry.get("m").serving.statistics().queue_depth == 0


def metrics(server):
    """The counters of a model's requests: ``{(name, route, status): count}``."""

    async def read():
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(
            b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        text = (await reader.read()).decode()
        writer.close()
        return text

    found = {}
    for line in asyncio.run(read()).splitlines():
        if line.startswith("exburn_http_") and 'model="m"' in line:
            name, value = line.removeprefix("exburn_http_").rsplit(" ", 1)
            labels = re.findall(r'(route|status)="(\w*)"', name)
            key = name.partition("{")[0], *(value for _, value in sorted(labels))
            found[key] = float(value)
    return found


# ---------------------------------------------------------------------- fuzzing
TOKENS = (
    *(b"null", b"true", b"-1", b"1e999", b"NaN", b"Infinity", b"-0.0", b"1.5", b'"x"'),
    *(b"[]", b"{}", b"[[", b"]]", b'{"a":', b'"\\ud800"', b'"\\u0000"', b"\xff\xfe"),
    *(b"9" * 400, b"[" * 3000, b'"binary_data_size"', b'"parameters"', b'"BYTES"'),
    *(b"18446744073709551616", b"-9223372036854775809", b'"shape"', b'"FP64"', b""),
)


def mutated(rng, body):
    """A body with some of its bytes flipped, cut, doubled, or replaced by a token."""
    body = bytearray(body)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(body) + 1)
        end = min(len(body), at + rng.choice((0, 1, 1, 2, 5, 20)))
        way = rng.randrange(4)
        if way == 0 and at < len(body):
            body[at] ^= 1 << rng.randrange(8)
        elif way == 1:
            del body[at:end]
        elif way == 2:
            body[at:at] = body[at:end]
        else:
            body[at:end] = rng.choice(TOKENS)
    return bytes(body)


@pytest.fixture(scope="module")
def fuzzed(several):
    """An application of two models: of numbers, and of ids and flags."""
    x = exburn.Input((3,), name="x")
    plain = exburn.Model(x, layers.Dense(2, name="scores")(x))
    server = Server({"m": plain, "several": several}, max_body="64 KB", **FAST)
    yield server.asgi()
    server.close()


def seeds():
    """Paths, whole bodies, and the length of their JSON part."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    ids, flags = np.array([[1, 2]], np.int32), np.array([[True]])
    body, _ = as_json(x)
    outputs = json.loads(body) | {"id": "1", "outputs": [{"name": "scores"}]}
    both = [tensor("ids", ids, "INT32"), tensor("flags", flags, "BOOL")]
    binary = [
        {"name": "ids", "datatype": "INT32", "shape": [1, 2]},
        {"name": "flags", "datatype": "BOOL", "shape": [1, 1]},
    ]
    for entry, size in zip(binary, (8, 1), strict=True):
        entry["parameters"] = {"binary_data_size": size}
    head = json.dumps({"inputs": binary, "parameters": {"timeout": 10**6}}).encode()
    return [
        ("m", body, None),
        ("m", json.dumps(outputs).encode(), None),
        ("m", *as_binary(x)),
        ("m", x.tobytes(), 0),
        ("several", json.dumps({"inputs": both}).encode(), None),
        ("several", head + ids.tobytes() + flags.tobytes(), len(head)),
    ]


async def post(app, path, headers, body):
    """The status of one request."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    sent = []

    async def receive():
        if messages:
            return messages.pop()
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    await app(scope | {"query_string": b"", "root_path": ""}, receive, send)
    return sent[0]["status"], b"".join(part["body"] for part in sent[1:])


@pytest.mark.parametrize("count", [1_000, 100_000])
def test_no_body_is_a_fault_of_the_server(fuzzed, count):
    """What is not answered is refused with a reason, never by 5xx."""
    kept, seen = seeds(), Counter()

    async def run():
        for number in range(count):
            rng = random.Random(number)
            model, body, length = rng.choice(kept)
            body, headers = mutated(rng, body), []
            if length is not None:
                length = rng.choice((length, length, length, len(body), -1, 1, "x"))
                name = b"inference-header-content-length"
                headers.append((name, str(length).encode()))
            if rng.random() < 0.1:
                body = gzip.compress(body)
                if rng.random() < 0.5:
                    body = mutated(rng, body)
                headers.append((b"content-encoding", b"gzip"))
            headers.append((b"content-length", str(len(body)).encode()))
            path = f"/v2/models/{model}/infer"
            status, answer = await post(fuzzed, path, headers, body)
            assert status == 200 or 400 <= status < 500, (number, status, body)
            assert status == 200 or json.loads(answer)["error"], number
            seen[status] += 1

    asyncio.run(run())
    assert seen[200] > count / 100 and seen[400] > count / 3


HEAD = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\n"
SIZED = HEAD + b"Content-Length: %d\r\n"
GET = b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n"
ON_THE_WIRE = (
    *(
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"\r",
        b"\x00",
        b" ",
        b":",
        b"*",
        b"%",
        b"%zz",
        b"\xff",
    ),
    *(
        b"GET ",
        b"HTTP/1.0",
        b"HTTP/2.0",
        b"http://localhost/",
        b"A" * 5000,
        b"0\r\n\r\n",
    ),
    *(b"ffffffffffffffff", b"-1", b"Content-Length: 5\r\n", b"Connection: close\r\n"),
    *(
        b"Transfer-Encoding: chunked\r\n",
        b"Host: evil.example\r\n",
        b"Origin: null\r\n",
    ),
    *(b"Connection: upgrade\r\nUpgrade: x\r\n", b"Expect: 100-continue\r\n"),
    *(b"Content-Encoding: gzip\r\n", b"Inference-Header-Content-Length: 7\r\n"),
)


def requests(body):
    """Whole requests, which are spoiled and follow each other."""
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in (body[:20], body[20:]))
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    return [
        SIZED % len(body) + b"\r\n" + body,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nA: b\r\n\r\n",
        SIZED % len(body) + upgrade + body,
        GET + b"\r\n",
        GET.replace(b"GET", b"HEAD") + b"\r\n",
        GET.replace(b"/v2", b"http://localhost/v2/models/m") + b"\r\n",
        GET.replace(b"GET", b"OPTIONS") + b"Origin: http://localhost\r\n\r\n",
    ]


def spoiled(rng, request):
    parts = bytearray(request)
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        at = rng.randrange(len(parts) + 1)
        end = min(len(parts), at + rng.choice((0, 0, 1, 2, 8)))
        parts[at:end] = rng.choice((b"", *ON_THE_WIRE))
    return bytes(parts)


@pytest.mark.parametrize("count", [300, 20_000])
def test_no_bytes_on_the_wire_are_a_fault_of_the_server(served, count, caplog):
    """What comes back is answers, of a status below 500, and in time."""
    server, pool, _ = served
    kept, seen = requests(as_json(pool[:1])[0]), Counter()
    for number in range(count):
        rng = random.Random(number)
        which = rng.choices(kept, k=rng.choice((1, 1, 2, 3)))
        sent = b"".join(spoiled(rng, request) for request in which)
        size = rng.choice((1, 7, 100, 100_000))
        received, began = b"", time.monotonic()
        with socket.create_connection(("127.0.0.1", server.port), 8) as connection:
            try:
                for at in range(0, len(sent), size):
                    connection.sendall(sent[at : at + size])
                connection.shutdown(socket.SHUT_WR)
                while part := connection.recv(1 << 16):
                    received += part
            except OSError:  # the server did not wait for the rest
                pass
        assert time.monotonic() - began < 5, (number, sent)
        for answer in received.split(b"HTTP/1.1 ")[1:]:
            status = int(answer[:3])
            assert status < 500 or status == 505, (number, sent)
            is_error = status >= 400 and b"HEAD" not in sent
            assert not is_error or b'{"error":' in answer, (number, sent)
            seen[status] += 1
    assert seen[200] > count / 20 and seen[400] > count / 3
    assert not [r for r in caplog.records if r.levelname == "ERROR"], caplog.text
    assert httpx.get(f"{server.url}/v2").status_code == 200
