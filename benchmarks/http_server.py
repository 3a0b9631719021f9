"""The server over HTTP beside others written in Python, and what it costs itself.

    python benchmarks/http_server.py [--peers fastapi,litserve] [--clients 1,32,256]
        [--work small,mlp,long] [--python ray=/venv/bin/python] [--json OUT]

Each request is a row of numbers as JSON: 8 for ``small``, whose model takes no time,
784 for ``mlp`` (1.9 million parameters), 100,000 for ``long``: 1 MB. ``exburn-binary``
sends ours the same as a binary tensor, ``exburn-triton`` has Triton's client send it
(``tritonclient[http]``). Clients have a connection each and ask again when they have
their answer; they are a process of their own.

ExBurn runs all the time; beside it one peer after the other is started, and the two are
measured in turn, so that a slow moment of the machine hits both: printed are medians,
and the median of the rounds' ratios. On a shared machine the processor time of all of a
server's processes, for each request, says more than the clock. A peer is run by the
interpreter that ``--python`` names for it; one that is not installed there is said, and
left out.

Overhead: a small request of one client to ours, less one to an empty route of Starlette
(which reads the body, too), less ``Serving.arun`` of the same row in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from http_load import load, request
from http_peers import PEERS, WORKS, asked, make_model
from process import environment_of, options, read, write

OTHERS = tuple(name for name in PEERS if name not in ("exburn", "starlette"))
TRITON = "exburn-triton"
START_SECONDS = 90.0
FIGURES = ("requests_per_s", "p50_ms", "p99_ms", "p999_ms", "cpu_us")

RATIOS = {"ratio": "requests_per_s", "p99_ratio": "p99_ms", "cpu_ratio": "cpu_us"}


class NotStarted(Exception):
    """A server did not answer in time, or ended."""


@contextlib.contextmanager
def started(peer: str, work: str, python: str) -> Iterator[int]:
    """Runs a server, in a process group of its own, and gives its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = str(Path(__file__).with_name("http_peers.py"))
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(
            [python, script, peer, str(port), work],
            env=environment_of(
                HTTP_PORT=str(port),  # by which they are found
                XLA_PYTHON_CLIENT_MEM_FRACTION="0.3",  # of a GPU that two share
            ),
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        ) as process,
    ):
        try:
            if not answers(process, port, bytes_of(peer, work)):
                said.seek(0)
                raise NotStarted(*said.read().strip().splitlines()[-1:])
            yield port
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def answers(process: subprocess.Popen, port: int, one: bytes) -> bool:
    """Waits until a request is answered as it should be; says if it ever was."""
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError):
            connection = socket.create_connection(("127.0.0.1", port), timeout=10)
            with connection:
                connection.sendall(one)
                if connection.recv(64).startswith(b"HTTP/1.1 200"):
                    return True
        time.sleep(0.2)
    return False


def bytes_of(peer: str, work: str) -> bytes:
    """A request of a peer as it is sent."""
    row = np.random.default_rng(0).random(WORKS[work][0], np.float32).round(6)
    return request(*asked(peer, row))


def processor_seconds(port: int) -> float:
    """Processor time that a server's processes have taken, those that it left, too."""
    marker, ticks = f"HTTP_PORT={port}\0".encode(), 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if marker in (folder / "environ").read_bytes():
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:15]))  # own, and of ended children
    return ticks / os.sysconf("SC_CLK_TCK")


def beside(
    ours: int, theirs: int, peer: str, work: str, clients: int, args: Any
) -> dict[str, dict[str, float]]:
    """A peer and ExBurn, measured in turn: the medians of both."""
    rounds: dict[str, list[dict[str, float]]] = {"exburn": [], peer: []}
    for _ in range(args.rounds):
        for name, port in (("exburn", ours), (peer, theirs)):
            used = processor_seconds(port)
            asks = WORKS[work][0] if name == TRITON else bytes_of(name, work)
            run = load(port, asks, clients, args.seconds)
            used = processor_seconds(port) - used
            run["cpu_us"] = used / max(run["answered"], 1) * 1e6
            rounds[name].append(run)
    figures = {}
    for name, runs in rounds.items():
        failed = sum(run["failed"] for run in runs)
        few = not all("p50_ms" in run for run in runs)
        if failed or few:
            what = f"{failed} requests failed" if failed else "hardly an answer"
            print(f"  {clients:4} clients, {name}: {what}", flush=True)
            continue
        figures[name] = {
            kind: statistics.median(run[kind] for run in runs) for kind in FIGURES
        }
    if len(figures) == 2:
        pairs = list(zip(rounds["exburn"], rounds[peer], strict=True))
        for name, kind in RATIOS.items():
            ratios = [a[kind] / b[kind] for a, b in pairs if b[kind]]
            figures[peer][name] = statistics.median(ratios or [float("nan")])
    return figures


def compare(args: Any, results: dict[str, Any]) -> None:
    """Fills ``results[work][clients][peer]``."""
    pythons = dict(word.split("=", 1) for word in args.python)
    counts = [int(n) for n in args.clients.split(",")]
    for work in args.work.split(","):
        with started("exburn", work, sys.executable) as ours:
            for peer in args.peers.split(","):
                print(f"{work}, {peer}", flush=True)
                with contextlib.ExitStack() as stack:
                    theirs = ours
                    if not peer.startswith("exburn"):
                        python = pythons.get(peer, sys.executable)
                        try:
                            theirs = stack.enter_context(started(peer, work, python))
                        except NotStarted as error:
                            print(f"  left out: {error}", flush=True)
                            continue
                    for clients in counts:
                        figures = beside(ours, theirs, peer, work, clients, args)
                        place = results.setdefault(work, {})
                        runs = place.setdefault(str(clients), {})
                        runs.update({k: v for k, v in figures.items() if k == peer})
                        runs.setdefault("exburn", figures.get("exburn", {}))
                        show(clients, figures)
                if args.json:
                    write(args.json, results)


def show(clients: int, figures: dict[str, dict[str, float]]) -> None:
    for name, run in figures.items():
        cells = [f"{run['requests_per_s']:7,.0f} requests/s"]
        cells += [f"{kind[:-3]} {run[kind]:8.2f} ms" for kind in FIGURES[1:-1]]
        cells.append(f"{run['cpu_us']:6,.0f} µs of processor time")
        if "ratio" in run:
            cells.append(f"ExBurn: {run['ratio']:.2f} × as many")
            cells.append(f"p99 {run['p99_ratio']:.2f} × as long")
            cells.append(f"processor {run['cpu_ratio']:.2f} × as long")
        print(f"  {clients:4} clients, {name:<14}", *cells, flush=True)


def overhead(args: Any, work: str = "small") -> dict[str, float]:
    """Microseconds of a lone small request, by what they are spent on."""
    from exburn import Serving

    x = np.random.default_rng(0).random((1, WORKS[work][0]), np.float32)
    spent: dict[str, list[float]] = {"request": [], "route": [], "serving": []}

    async def ask(serving: Serving) -> float:
        times, until = [], time.perf_counter() + args.seconds
        while time.perf_counter() < until:
            began = time.perf_counter()
            await serving.arun(x, copy=False)
            times.append(time.perf_counter() - began)
        return statistics.median(times) * 1e6

    with (
        started("exburn", work, sys.executable) as ours,
        started("starlette", work, sys.executable) as empty,
        Serving(make_model(work), batch_timeout=0) as serving,
    ):
        for _ in range(args.rounds):
            for name, peer, port in (
                ("request", "exburn", ours),
                ("route", "starlette", empty),
            ):
                run = load(port, bytes_of(peer, work), 1, args.seconds)
                spent[name].append(run["p50_ms"] * 1e3)
            spent["serving"].append(asyncio.run(ask(serving)))
    own = [
        whole - route - served
        for whole, route, served in zip(*spent.values(), strict=True)
    ]
    return {
        **{f"{name}_us": statistics.median(times) for name, times in spent.items()},
        "overhead_us": statistics.median(own),
    }


def main() -> None:
    parser = options(__doc__, ("exburn-binary", TRITON, *OTHERS), WORKS)
    parser.add_argument("--clients", default="1,32,256")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH")
    parser.add_argument("--overhead", action="store_true", help="measure that alone")
    args = parser.parse_args()
    results = read(args.json)
    if not args.overhead:
        compare(args, results)
    costs = results["overhead"] = overhead(args)
    print("a lone request:", *(f"{k[:-3]} {v:,.0f} µs" for k, v in costs.items()))
    if args.json:
        write(args.json, results)


if __name__ == "__main__":
    main()
