"""Logging, progress messages, presets and remote monitoring."""

import asyncio
import http.server
import json
import queue
import threading
import urllib.parse

import numpy as np
import pytest

import exburn
from exburn import callbacks, layers
from exburn.errors import CallbackError

X = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
Y = np.arange(64) % 3


def model():
    made = exburn.Sequential([exburn.Input((4,)), layers.Dense(3)])
    made.compile("sgd", "cross_entropy", metrics=["accuracy"], seed=0)
    return made


def test_logging():
    lines = []
    logger = callbacks.LoggingCallback(lines.append)
    model().fit(X, Y, epochs=2, validation_split=0.25, verbose=0, callbacks=[logger])
    first = r"Epoch 1: loss=\d\.\d{4} val_loss=\d\.\d{4} acc=\d+\.\d% val_acc=\d+\.\d% "
    import re

    assert re.fullmatch(first + r"\(\d+ samples/s, \d+ms\) ETA=\d+s", lines[0])
    assert re.fullmatch(
        first.replace("1:", "2:") + r"\(\d+ samples/s, \d+ms\)", lines[1]
    )


def test_durations():
    from exburn.callbacks.logging_callback import _duration

    assert [_duration(s) for s in (5, 62.1, 59.6, 3700)] == [
        "5s",
        "1m2s",
        "1m0s",
        "1h1m",
    ]


def test_messages_to_a_queue():
    messages = queue.Queue()
    model().fit(
        X, Y, epochs=2, verbose=0, callbacks=[callbacks.screen_callback(messages)]
    )
    seen = [messages.get() for _ in range(messages.qsize())]
    assert {m["type"] for m in seen} == {"training_progress"}
    events = [m["event"] for m in seen]
    assert events[0] == "train_begin" and events[-1] == "train_end"
    ends = [m for m in seen if m["event"] == "epoch_end"]
    assert [m["epoch"] for m in ends] == [1, 2] and all(m["loss"] > 0 for m in ends)
    assert "progress" in events
    json.dumps(seen)  # fit for a web page


def test_messages_to_a_full_queue_and_to_a_function():
    short, seen = queue.Queue(maxsize=2), []
    model().fit(
        X,
        Y,
        epochs=5,
        verbose=0,
        callbacks=[
            callbacks.screen_callback(short),
            callbacks.screen_callback(seen.append),
        ],
    )
    assert [short.get()["event"] for _ in range(2)] == ["epoch_end", "train_end"]
    assert len(seen) > 6


def test_messages_to_an_asyncio_loop():
    async def main():
        channel = asyncio.Queue()
        screen = callbacks.screen_callback(channel)
        made = model()
        training = asyncio.create_task(
            asyncio.to_thread(made.fit, X, Y, epochs=2, verbose=0, callbacks=[screen])
        )
        events = []
        while not events or events[-1] != "train_end":
            events.append((await asyncio.wait_for(channel.get(), 60))["event"])
        await training
        return events

    assert asyncio.run(main()).count("epoch_end") == 2

    async def to_a_coroutine():
        events = []

        async def send(message):
            await asyncio.sleep(0)
            events.append(message["event"])

        screen = callbacks.screen_callback(send)
        await asyncio.to_thread(model().fit, X, Y, verbose=0, callbacks=[screen])
        await asyncio.sleep(0.05)
        return events, screen

    events, screen = asyncio.run(to_a_coroutine())
    assert events[0] == "train_begin" and events[-1] == "train_end"
    screen.on_epoch_end(0, {"loss": 0.5})  # the loop is closed: that ends no training
    for interval in (-1, "often", float("nan")):
        with pytest.raises(CallbackError, match="interval"):
            callbacks.screen_callback(print, interval=interval)
    with pytest.raises(CallbackError, match="to_thread"):
        callbacks.screen_callback(asyncio.Queue())
    with pytest.raises(CallbackError, match="int"):
        callbacks.screen_callback(3)


def test_a_failure_is_told():
    seen = []

    def fail(logs):
        raise KeyError("mine")

    with pytest.raises(KeyError):
        model().fit(
            X, Y, verbose=0, callbacks=[callbacks.screen_callback(seen.append), fail]
        )
    assert seen[-1]["event"] == "failed" and "mine" in seen[-1]["error"]


def test_fit_with_progress(capsys):
    seen = []
    made, history = exburn.fit_with_progress(
        model(), (X, Y), epochs=2, validation_split=0.25, screen=seen.append
    )
    assert [entry["epoch"] for entry in history] == [1, 2]
    assert all(entry["val_loss"] > 0 for entry in history)
    assert capsys.readouterr().out.count("Epoch") == 2 and seen
    made.compile("sgd", "cross_entropy")
    _, history = exburn.fit_with_accuracy(made, (X, Y), epochs=1, verbose=False)
    assert 0 <= history[0]["accuracy"] <= 1 and history[0]["val_loss"] is None
    assert capsys.readouterr().out == ""


def test_presets(tmp_path, capsys):
    chosen = callbacks.standard(
        early_stopping_patience=2,
        checkpoint_interval=2,
        checkpoint_dir=tmp_path,
        warmup_epochs=1,
    )
    made = model()
    made.compile(exburn.optimizers.SGD(0.0), "cross_entropy")
    history = made.fit(X, Y, epochs=9, verbose=0, callbacks=chosen)
    assert len(history.epoch) == 3  # the loss without validation, two misses
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint_epoch_2.safetensors"]
    other = model()
    other.load_weights(tmp_path / "checkpoint_epoch_2.safetensors")
    for a, b in zip(made.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert capsys.readouterr().out.count("Epoch") == 3
    names = [type(c).__name__ for c in callbacks.standard(early_stopping_patience=0)]
    assert names == ["LoggingCallback", "EpochCheckpoint"]
    with pytest.raises(CallbackError):
        callbacks.standard(early_stopping_patience=-1)
    with pytest.raises(CallbackError):
        callbacks.EpochCheckpoint(0)


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
