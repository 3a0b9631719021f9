"""A server of texts under abuse: no request lost, no text wrong, through drains.

    python benchmarks/text_soak.py [--requests 100000] [--drains 20] [--seconds 300]
        [--processes 16] [--pairs 4] [--json FILE]

Clients ask a tiny model for texts that are known beforehand, whole and in chunks, with
stops, seeds and several rows. Between them comes poison: bodies that are cut, of wrong
types or with bytes that are no text, clients that leave midway, and readers that stop
to read. Pages are too few for all slots, so that texts wait, or are written on later.
Again and again the server is drained, and another takes its port while it answers what
it has. In the end every request has its text, or an error that says so; slots and pages
of each server are free.

``--processes`` divides requests and drains among soaks side by side, each with clients,
servers and cores of its own. In ``--pairs`` of them two servers in processes of their
own stand behind one port: by turns one is killed (SIGKILL) and one drained (SIGTERM),
and another comes in its place. Sums are printed every 20 seconds, and written as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, TextIO

sys.path.insert(0, str(Path(__file__).parent))
from process import environment_of, versions
from soak_clients import Soak, known_texts, make_model

from exburn.serving import Server, TextStream

_CACHE = "32 KB"  # 16 pages: fewer than the texts of all slots need
_TOLD = 5.0  # seconds between two counts of a soak
_SUMMED = 20.0  # and between two sums of all


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--drains", type=int, default=20)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", choices=("one", "pair", "serve"))
    parser.add_argument("--port", type=int, default=0)
    return parser.parse_args()


# ---------------------------------------------------------------------- servers
def server_of(model: Any, port: int) -> tuple[Server, TextStream]:
    limits: Any = {"slots": 8, "cache": _CACHE, "max_queue": 200, "wait": "5 min"}
    stream = TextStream(model, **limits)
    return Server({"m": stream}, port=port, reuse_port=True, log_level="ERROR"), stream


def in_use(stream: TextStream) -> int:
    """Rows and pages that a server holds."""
    assert stream.engine is not None
    now = stream.engine.statistics()
    return now.active + now.queue + now.pages - now.pages_free


class One:
    """A server in this process; another one takes its port."""

    def __init__(self, model: Any, port: int):
        self.model, self.port = model, port
        self.counts, self.streams = Counter[str](), []
        self.server = self._start()

    def _start(self) -> Server:
        server, stream = server_of(self.model, self.port)
        self.streams.append(stream)
        return server.start()

    def change(self) -> None:
        following = self._start()
        self.server.close(drain=0.2)
        self.server = following
        self.counts["drains"] += 1

    def close(self) -> None:
        self.server.close()
        for stream in self.streams:
            self.counts["in use"] += in_use(stream)
            assert stream.engine is not None
            self.counts["preempted"] += stream.engine.statistics().preempted
            stream.close()


class Pair:
    """Two servers in processes of their own behind one port."""

    def __init__(self, model: Any, port: int):
        self.port, self.counts = port, Counter[str]()
        self.servers = [self._start(), self._start()]
        for server in self.servers:
            self._wait(server)

    def _start(self) -> subprocess.Popen[str]:
        words = [sys.executable, __file__, "--child", "serve", "--port", str(self.port)]
        return subprocess.Popen(
            words, stdout=subprocess.PIPE, text=True, env=environment_of()
        )

    def _wait(self, server: subprocess.Popen[str]) -> None:
        assert server.stdout is not None
        if not server.stdout.readline().startswith("SERVES"):
            raise RuntimeError("a server of a pair did not start")

    def change(self) -> None:
        """Kills or drains one, while the other has the port alone."""
        server = self.servers.pop(0)
        if self.counts["kills"] > self.counts["drains"]:
            self._drain(server)
        else:
            server.kill()
            server.communicate()
            self.counts["kills"] += 1
        self.servers.append(self._start())
        self._wait(self.servers[-1])

    def _drain(self, server: subprocess.Popen[str]) -> None:
        server.send_signal(signal.SIGTERM)
        out, _ = server.communicate(timeout=60)
        self.counts["drains"] += 1
        self.counts["in use"] += int(out.partition("IN USE ")[2])

    def close(self) -> None:
        for server in self.servers:
            self._drain(server)
            self.counts["drains"] -= 1  # nobody asked any more


def serve(options: argparse.Namespace) -> None:
    """One of a pair, until it is ended."""
    server, stream = server_of(make_model(), options.port)
    server.run(listening=lambda url: print("SERVES", flush=True))
    print("IN USE", in_use(stream), flush=True)


# ---------------------------------------------------------------------- one soak
async def soak(options: argparse.Namespace, kind: type[One | Pair]) -> None:
    """Clients of one server, or one pair, that is changed as their requests go on."""
    model = make_model()
    texts = known_texts(model)
    with socket.socket() as place:  # kept, so that no soak beside takes the port
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        place.bind(("127.0.0.1", 0))
        servers = await asyncio.to_thread(kind, model, place.getsockname()[1])
        begin = time.monotonic()
        asked = Soak(texts, servers.port, options.seed)
        until = begin + options.seconds
        clients = [
            asyncio.create_task(asked.client(until, options.requests))
            for _ in range(options.clients)
        ]
        ended = asyncio.Event()
        changes = asyncio.create_task(change_often(options, asked, servers, ended))
        while any(not task.done() for task in clients):
            tell(asked, servers, begin)
            await asyncio.wait(clients, timeout=_TOLD)
        ended.set()
        await asyncio.gather(changes, *clients)
        await asyncio.to_thread(servers.close)
        tell(asked, servers, begin, ended=True)


async def change_often(
    options: argparse.Namespace, asked: Soak, servers: One | Pair, ended: asyncio.Event
) -> None:
    """Changes a server each time that so many requests are through."""
    for number in range(1, options.drains + 1):
        due = number * options.requests / (options.drains + 1)
        while asked.outcomes.total() < due and not ended.is_set():
            await asyncio.sleep(0.05)
        if ended.is_set():
            return
        await asyncio.to_thread(servers.change)


def tell(asked: Soak, servers: One | Pair, begin: float, ended: bool = False) -> None:
    """Prints what became of a soak's requests so far."""
    result = {
        "outcomes": dict(asked.outcomes),
        "servers": dict(servers.counts),
        "wrong": [repr(each)[:400] for each in asked.wrong[:3]],
        "seconds": round(time.monotonic() - begin, 1),
        "ended": ended,
    }
    print("SOAK", json.dumps(result), flush=True)


# ---------------------------------------------------------------------- side by side
def spread(options: argparse.Namespace) -> None:
    """Soaks side by side: prints and writes the sums of all."""
    count, results = options.processes, {}
    begin, versions_now = time.monotonic(), versions()
    with contextlib.ExitStack() as stack:
        processes = [begin_soak(options, number) for number in range(count)]
        for number, process in enumerate(processes):
            stack.callback(end_group, process)
            threading.Thread(
                target=follow, args=(number, process.stdout, results), daemon=True
            ).start()
        summed = begin
        while any(process.poll() is None for process in processes):
            time.sleep(0.5)
            if time.monotonic() - summed > _SUMMED:
                summed = time.monotonic()
                write_sum(options, versions_now, results, begin)
            if time.monotonic() - begin > options.seconds + 120:
                break  # those that hang are seen as not ended
        time.sleep(0.5)  # their last lines
    write_sum(options, versions_now, results, begin)


def begin_soak(options: argparse.Namespace, number: int) -> subprocess.Popen[str]:
    """A soak with its part of requests, drains and cores."""
    count = options.processes
    words = [sys.executable, __file__, "--seed", str(options.seed + number)]
    words += ["--child", "pair" if number < options.pairs else "one"]
    words += ["--requests", str(-(-options.requests // count))]
    words += ["--drains", str(-(-options.drains // count))]
    words += ["--clients", str(options.clients), "--seconds", str(options.seconds)]
    cores = sorted(os.sched_getaffinity(0))
    own = cores[number % len(cores) :: count]
    return subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        text=True,
        env=environment_of(PYTHONUNBUFFERED="1"),
        start_new_session=True,
        preexec_fn=lambda: os.sched_setaffinity(0, own),
    )


def end_group(process: subprocess.Popen[str]) -> None:
    """Ends a soak, and servers that it has left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def follow(number: int, lines: TextIO, results: dict[int, Any]) -> None:
    for line in lines:
        if line.startswith("SOAK "):
            results[number] = json.loads(line[5:])


def write_sum(
    options: argparse.Namespace, noted: Any, results: dict[int, Any], begin: float
) -> None:
    parts = list(results.values())
    outcomes, servers = Counter[str](), Counter[str]()
    for part in parts:
        outcomes.update(part["outcomes"])
        servers.update(part["servers"])
    wrong = outcomes["wrong"] + sum(
        n for k, n in outcomes.items() if k.startswith("status") or k == "taken"
    )
    result = {
        "requests": outcomes.total(),
        "wrong": wrong,
        "lost": outcomes["lost"],
        "servers": dict(servers),
        "outcomes": dict(outcomes),
        "soaks": options.processes,
        "ended": sum(part["ended"] for part in parts),
        "seconds": round(time.monotonic() - begin, 1),
        "examples": [each for part in parts for each in part["wrong"]][:5],
    }
    print("SUM", json.dumps(result), flush=True)
    if options.json is not None:
        new = options.json.with_suffix(".new")
        new.write_text(json.dumps({"versions": noted, "results": result}, indent=1))
        new.replace(options.json)


def main() -> None:
    options = arguments()
    if options.child == "serve":
        serve(options)
    elif options.child is not None:
        asyncio.run(soak(options, Pair if options.child == "pair" else One))
    else:
        spread(options)


if __name__ == "__main__":
    main()
