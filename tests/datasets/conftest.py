"""Fixtures of the data tests: an empty cache, and a file server on this machine."""

import http.server
import os
import threading

import pytest

os.environ["KERAS_BACKEND"] = "jax"  # before the peer is imported

import exburn.datasets  # noqa: F401  (registers the adapters)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, and a home without Keras' cache."""
    monkeypatch.setenv("EXBURN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "cache"


class FileServer(http.server.ThreadingHTTPServer):
    """Serves ``files``; counts requests, and can break or ignore ranges on demand."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.break_after: int | None = None  # bytes; then the connection closes
        self.ranges = True
        self.stalls = threading.Event()
        self.stalls.set()  # clear it: what is broken off then stays open, and silent
        self.length: str | None = None  # what the header says, if that is a lie

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(http.server.BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.server.requests.append((self.path, wanted))
        data = self.server.files.get(self.path.lstrip("/"))
        if data is None:
            self.send_error(404)
            return
        start = 0
        if wanted and self.server.ranges:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            if start >= len(data):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header(
                "Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}"
            )
        else:
            self.send_response(200)
        body = data[start:]
        self.send_header("Content-Length", self.server.length or str(len(body)))
        self.end_headers()
        if self.server.break_after is not None:
            body = body[: self.server.break_after]
        self.wfile.write(body)
        self.wfile.flush()
        self.server.stalls.wait(30)

    def log_message(self, *_):
        """Keeps the test output clean."""


@pytest.fixture
def server():
    with FileServer() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()
