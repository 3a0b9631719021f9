"""Clients of an HTTP server: requests per second, and how long each of them took.

Each client has one connection and asks again when it has its answer. All of them are in
one process of their own, so that they take no turns of the server's interpreter.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from typing import Any

__all__ = ["load", "request"]


def request(path: str, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    """A POST as it is sent."""
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Content-Length: {len(body)}",
        *(f"{k}: {v}" for k, v in (headers or {}).items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def load(
    port: int, asked: bytes | int, clients: int, seconds: float
) -> dict[str, float]:
    """Loads a server with a number of clients, in a process of their own.

    Args:
        port: Of the server.
        asked: A request as it is sent; or the size of a row that Triton's client sends.
        clients: How many there are.
        seconds: How long they ask, after a third of it that does not count.

    Returns:
        ``requests_per_s``, ``p50_ms``, ``p99_ms``, ``p999_ms``, ``requests``,
        ``failed`` (those of them that another status than 200 answered), and
        ``answered``, with those before the clock started.
    """
    words = [sys.executable, __file__, str(port), str(clients), str(seconds)]
    if isinstance(asked, int):
        words.append(str(asked))
    done = subprocess.run(
        words,
        input=asked if isinstance(asked, bytes) else b"",
        capture_output=True,
        timeout=60 + 10 * seconds,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode()[-2000:])
    return json.loads(done.stdout)


class Client(asyncio.Protocol):
    """One connection.

    Args:
        asked: The request.
        clock: When measuring begins and ends.
        times: Seconds of each request that was answered between.
    """

    def __init__(self, asked: bytes, clock: list[float], times: list[float]):
        self.asked, self.clock, self.times = asked, clock, times
        self.buffer, self.wanted = b"", 0
        self.failed = self.answered = 0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def ask(self) -> None:
        self.buffer, self.wanted = b"", 0
        self.began = time.perf_counter()
        self.transport.write(self.asked)

    def data_received(self, data: bytes) -> None:
        self.buffer = self.buffer + data if self.buffer else data
        if self.wanted == 0:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.buffer[:end].lower()
            at = head.find(b"content-length:")
            if at < 0:
                self.done.set_exception(RuntimeError(f"no length: {head!r}"))
                self.transport.close()
                return
            self.wanted = end + 4 + int(head[at + 15 :].split(b"\r\n", 1)[0])
        if len(self.buffer) < self.wanted:
            return
        now = time.perf_counter()
        begin, end = self.clock
        self.answered += 1
        if begin <= now <= end:
            self.times.append(now - self.began)
            self.failed += not self.buffer.startswith(b"HTTP/1.1 200")
        if now < end:
            self.ask()
        else:
            self.transport.close()
            if not self.done.done():
                self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("closed by the server"))


async def run(port: int, asked: bytes, clients: int, seconds: float) -> dict:
    clock, times = [0.0, 0.0], []
    loop, protocols = asyncio.get_running_loop(), []
    for _ in range(clients):
        make = lambda: Client(asked, clock, times)  # noqa: E731
        _, protocol = await loop.create_connection(make, "127.0.0.1", port)
        protocols.append(protocol)
    begin = time.perf_counter() + min(1.0, seconds / 3)
    clock[:] = begin, begin + seconds
    for protocol in protocols:
        protocol.ask()
    await asyncio.gather(*(protocol.done for protocol in protocols))
    answered = sum(protocol.answered for protocol in protocols)
    failed = sum(protocol.failed for protocol in protocols)
    return summary(times, seconds, answered, failed)


async def run_triton(port: int, width: int, clients: int, seconds: float) -> dict:
    """Loads a server by Triton's client, which sends and asks for binary tensors."""
    import numpy as np
    import tritonclient.http.aio as triton

    row = np.random.default_rng(0).random((1, width), np.float32)
    x = triton.InferInput("x", row.shape, "FP32")
    x.set_data_from_numpy(row)
    outputs = [triton.InferRequestedOutput("y")]
    begin = time.perf_counter() + min(1.0, seconds / 3)
    end, times, answered = begin + seconds, [], 0
    url = f"127.0.0.1:{port}"
    async with triton.InferenceServerClient(url, conn_limit=clients) as server:

        async def ask() -> None:
            nonlocal answered
            while (began := time.perf_counter()) < end:
                await server.infer("m", [x], outputs=outputs)
                now, answered = time.perf_counter(), answered + 1
                if begin <= now <= end:
                    times.append(now - began)

        await asyncio.gather(*(ask() for _ in range(clients)))
    return summary(times, seconds, answered, failed=0)


def summary(
    times: list[float], seconds: float, answered: int, failed: int
) -> dict[str, float]:
    """Rate and quantiles of requests, by the seconds that each took."""
    figures = {
        "requests": len(times),
        "answered": answered,
        "failed": failed,
        "requests_per_s": len(times) / seconds,
    }
    if len(times) > 1:
        cuts = statistics.quantiles(times, n=1000, method="inclusive")
        for name, at in (("p50_ms", 499), ("p99_ms", 989), ("p999_ms", 998)):
            figures[name] = cuts[at] * 1e3
    return figures


def main() -> None:
    port, clients, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    if len(sys.argv) > 4:
        work = run_triton(port, int(sys.argv[4]), clients, seconds)
    else:
        work = run(port, sys.stdin.buffer.read(), clients, seconds)
    try:
        import uvloop

        runner = uvloop.run
    except ImportError:
        runner = asyncio.run
    print(json.dumps(runner(work)))


if __name__ == "__main__":
    main()
