"""Starts a script in several processes that compute together, each on CPU devices."""

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEVICES = "--xla_force_host_platform_device_count"
HEARTBEAT = 10  # seconds after which a process that is gone is missed
# Begins a script: the same rows in every process.
DATA = """
import exburn as keras

keras.utils.set_random_seed(1)
x = np.random.default_rng(0).normal(size=(1000, 8)).astype("float32")
y = (x.sum(1) > 0).astype("int32")
"""
# What each process runs before its script.
BEGIN = """
import json, os, sys
import numpy as np
import jax
from exburn.runtime.sharding import joining, liveness, processes

NUMBER = int(os.environ["EXBURN_TEST_PROCESS"])
FOLDER = os.environ["EXBURN_TEST_FOLDER"]


def report(**values):
    with open(os.environ["EXBURN_TEST_REPORT"], "a") as file:
        file.write(json.dumps(values) + "\\n")


if "EXBURN_TEST_JOINS" in os.environ:
    joining.initialize(heartbeat_timeout={heartbeat}, timeout=60)
"""


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a process ended: its exit status, what it wrote, and what it reported."""

    code: int
    output: str
    errors: str
    reports: list[dict]

    @property
    def values(self):
        """All that it reported, as one dict."""
        return {name: value for one in self.reports for name, value in one.items()}


class Processes:
    """Processes that were started, for the time of a ``with`` block.

    Args:
        script: Python source, which can use ``processes``, ``np``, ``jax``, ``NUMBER``,
            ``FOLDER`` and ``report(name=value)``.
        count: How many run it.
        devices: CPU devices of each.
        folder: One that all of them share; a temporary one by default.
        timeout: Seconds after which all are killed.
        heartbeat: Seconds after which a process that is gone is missed.
        cluster: Gives the variables by which one finds the others, for its number and a
            free port; those of Keras by default.
        **environment: Further variables.
    """

    def __init__(
        self,
        script,
        *,
        count=2,
        devices=2,
        folder=None,
        timeout=120.0,
        heartbeat=HEARTBEAT,
        cluster=None,
        **environment,
    ):
        self._end = time.monotonic() + timeout
        self._own = tempfile.TemporaryDirectory(prefix="exburn-processes-")
        self.place = Path(self._own.name)
        self.folder = Path(folder) if folder is not None else self.place / "shared"
        self.folder.mkdir(exist_ok=True, parents=True)
        path = self.place / "script.py"
        path.write_text(BEGIN.format(heartbeat=heartbeat) + textwrap.dedent(script))
        cluster, port = cluster or (lambda *of: _keras(count, *of)), free_port()
        flags = os.environ.get("XLA_FLAGS", "")
        self._running = []
        for number in range(count):
            variables = {
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PYTHONSAFEPATH": "1",
                "KERAS_BACKEND": "jax",
                "JAX_PLATFORMS": "cpu",
                "EXBURN_COMPILATION_CACHE": "off",
                "XLA_FLAGS": f"{flags} {DEVICES}={devices}",
                "EXBURN_TEST_PROCESS": str(number),
                "EXBURN_TEST_FOLDER": str(self.folder),
                "EXBURN_TEST_REPORT": str(self.place / f"report-{number}"),
            }
            if count > 1:
                variables |= {"EXBURN_TEST_JOINS": "1"} | cluster(number, port)
            streams = [(self.place / f"{n}-{number}").open("w") for n in ("out", "err")]
            self._running.append(
                subprocess.Popen(
                    [sys.executable, "-u", str(path)],
                    stdout=streams[0],
                    stderr=streams[1],
                    stdin=subprocess.DEVNULL,
                    env=variables | environment,
                    cwd=self.folder,
                    start_new_session=True,
                )
            )
            for stream in streams:
                stream.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with what it has started
            process.wait()
        self._own.cleanup()

    def send(self, number, signum):
        """Sends one of them a signal."""
        self._running[number].send_signal(signum)

    def reports(self, number):
        """What one has reported until now."""
        path = self.place / f"report-{number}"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def wait_for(self, number, name):
        """Waits until one has reported a name; returns the value."""
        while True:
            for values in self.reports(number):
                if name in values:
                    return values[name]
            ended = self._running[number].poll() is not None
            assert not ended and time.monotonic() < self._end, self._tell()
            time.sleep(0.02)

    def wait(self):
        """Waits for all; kills them, and fails, when the time is over."""
        late = []
        for number, process in enumerate(self._running):
            try:
                process.wait(max(self._end - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                late.append(number)
        if late:
            for number in late:
                # The stacks of those that hang, by the handler of pytest's plugin.
                self.send(number, signal.SIGABRT)
            raise AssertionError(f"processes {late} did not end\n{self._tell()}")
        return [self._ended(number) for number in range(len(self._running))]

    def _ended(self, number):
        return Ended(
            self._running[number].returncode,
            (self.place / f"out-{number}").read_text(),
            (self.place / f"err-{number}").read_text(),
            self.reports(number),
        )

    def _tell(self):
        lines = []
        for number in range(len(self._running)):
            one = self._ended(number)
            lines.append(f"--- process {number}: {one.code}, {one.reports}")
            lines.append(one.output[-1500:])
            lines.append(one.errors[-4000:])
        return "\n".join(lines)


def run(script, **options):
    """Runs a script to its end in all processes, which must succeed.

    Returns:
        What each reported, as one dict.
    """
    with Processes(script, **options) as started:
        ended = started.wait()
        assert all(one.code == 0 for one in ended), started._tell()
    return [one.values for one in ended]


def _keras(count, number, port):
    return {
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": f"127.0.0.1:{port}",
        "KERAS_DISTRIBUTION_NUM_PROCESSES": str(count),
        "KERAS_DISTRIBUTION_PROCESS_ID": str(number),
    }


def free_port():
    """A port of this machine that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
