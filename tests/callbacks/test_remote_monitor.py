"""Tests of ``exburn.callbacks.remote_monitor``."""

import http.server
import json
import threading
import urllib.parse

import pytest
from tests.callbacks.messages import X, Y, model

from exburn import callbacks


@pytest.mark.parametrize("as_json", [True, False])
def test_remote_monitor(as_json):
    got = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers["Content-Type"], body.decode()))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            """Tests are quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monitor = callbacks.RemoteMonitor(
            f"http://127.0.0.1:{server.server_port}", path="/here", send_as_json=as_json
        )
        model().fit(X, Y, epochs=2, verbose=0, callbacks=[monitor])
        server.shutdown()
    assert [path for path, _, _ in got] == ["/here"] * 2
    kind, body = got[1][1:]
    if not as_json:
        body = urllib.parse.parse_qs(body)["data"][0]
    assert kind == "application/" + ("json" if as_json else "x-www-form-urlencoded")
    assert json.loads(body).keys() == {"epoch", "loss", "accuracy"}


def test_remote_monitor_without_a_server():
    monitor = callbacks.RemoteMonitor("http://127.0.0.1:1")
    with pytest.warns(UserWarning, match="did not take the logs"):
        history = model().fit(X, Y, verbose=0, callbacks=[monitor])
    assert len(history.epoch) == 1
