"""Tests of ``exburn.callbacks.screen_callback``."""

import asyncio
import json
import queue

import pytest
from tests.callbacks.messages import X, Y, model

import exburn
from exburn import callbacks
from exburn.errors import CallbackError


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
