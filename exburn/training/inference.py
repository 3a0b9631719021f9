"""The loops of evaluation and prediction: chunks in, means or outputs out."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from exburn.callbacks.contract import CallbackList
from exburn.errors import warn
from exburn.runtime.transfer import batch_number
from exburn.training.agreement import Agreement
from exburn.training.check import in_batch
from exburn.training.feed.base import Feed
from exburn.training.output_collector import OutputCollector
from exburn.training.prepare import Preparer
from exburn.training.timing import Timing

IN_FLIGHT = 2  # chunks that are dispatched ahead of the device
GLANCE = 0.1  # seconds between two looks at the running means


def evaluate(
    prepared: Preparer,
    feed: Feed,
    read: Callable[[], tuple],
    callbacks: CallbackList,
    owner: Any,
    agreement: Agreement | None = None,
    epoch: Timing | None = None,
) -> dict[str, Any]:
    """Exact means over the data of a feed.

    Args:
        prepared: The module, prepared for the data.
        feed: The data.
        read: Gives the arrays to evaluate with.
        callbacks: What is told of it.
        owner: The model that the callbacks see.
        agreement: That of the ``fit`` whose epoch they validate.
        epoch: That of the epoch which the data validate.
    """
    programs = prepared.programs
    owner.stop_evaluating = False
    agreement = agreement or Agreement(prepared.holder, owner, "evaluate")
    alone = prepared.holder.state is None

    def tell(hook: Callable, *args: Any) -> None:  # within fit, it sees the weights
        prepared.holder.call_hook(hook, *args, light=alone or callbacks.light_tests)

    def glance(logs: dict[str, Any]) -> None:
        light = alone or callbacks.light_in("on_test_chunk_end")
        prepared.holder.call_hook(callbacks.on_test_chunk_end, done, logs, light=light)

    tell(callbacks.on_test_begin)
    arrays = read()  # a callback may have put others in their place
    per_batch = callbacks.hears_batches("test")
    reads = callbacks.reads_logs("on_test_batch_end")
    glances = callbacks.listens("on_test_chunk_end")
    totals, done, last = prepared.fresh_totals("test"), 0, time.perf_counter()
    readings: Any = None  # there is a chunk: no source is empty
    flight: deque[Any] = deque()
    chunks, timing = feed.epoch(prepared.holder.seed, 0), Timing(feed.pop_wait())
    chunks = agreement.chunks(chunks, GLANCE, "evaluate")
    with contextlib.closing(chunks), prepared.holder.telling(callbacks):
        for chunk in timing.data(chunks):
            if per_batch:
                tell(callbacks.on_test_batch_begin, done)
            start = batch_number(done)
            with in_batch(done, "evaluation" if alone else "validation"):
                totals, readings = programs.evaluate(
                    arrays, totals, *chunk.arguments, start
                )
            done += chunk.steps
            flight.append(readings)
            if len(flight) > IN_FLIGHT:
                agreement.wait(flight.popleft())
            if per_batch:
                prepared.readings = readings
                due = reads and callbacks.is_due("test", done - 1)
                logs = prepared.read_logs(readings.send()) if due else {}
                tell(callbacks.on_test_batch_end, done - 1, logs)
            if glances and agreement.is_due(last, GLANCE):
                last = time.perf_counter()
                logs = prepared.read_logs(readings)
                if alone:  # within fit, its own wait is shown
                    timing.tell_wait(callbacks.callbacks)
                glance(logs)
            if agreement.ends or (owner.stop_evaluating and not agreement.active):
                break
    if epoch is not None:
        epoch.add_validation(timing)
    if feed.ended is not None:
        warn(feed.ended)
    logs = prepared.read_logs(readings.send())
    if glances:
        glance(logs)
    tell(callbacks.on_test_end, logs)
    return logs


def predict(prepared: Preparer, feed: Feed, callbacks: CallbackList, owner: Any) -> Any:
    """Outputs for every row, streamed into host memory.

    Args:
        prepared: The module, prepared for the data.
        feed: The data.
        callbacks: What is told of it.
        owner: The model that the callbacks see.
    """
    programs = prepared.programs
    owner.stop_predicting = False
    agreement = Agreement(prepared.holder, owner, "predict")
    callbacks.on_predict_begin()
    arrays = prepared.holder.split.read()
    per_batch = callbacks.hears_batches("predict")
    wanted = callbacks.listens("on_predict_batch_end")
    sink = OutputCollector(feed.samples)
    done, first, last = 0, prepared.next_draw(), time.perf_counter()
    chunks, timing = feed.epoch(prepared.holder.seed, 0), Timing(feed.pop_wait())
    chunks = agreement.chunks(chunks, GLANCE, "predict")
    with contextlib.closing(chunks), prepared.holder.telling(callbacks):
        for chunk in timing.data(chunks):
            if per_batch:
                callbacks.on_predict_batch_begin(done)
            start = batch_number(first + done)
            with in_batch(done, "prediction"):
                out = programs.predict(arrays, chunk.data, chunk.index, start)
            out = prepared.holder.placement.local(out)
            sink.put(chunk, out)
            done += chunk.steps
            if per_batch:
                due = wanted and callbacks.is_due("predict", done - 1)
                logs = {"outputs": sink.rows(chunk, out)} if due else {}
                callbacks.on_predict_batch_end(done - 1, logs)
            if agreement.is_due(last, GLANCE):
                last = time.perf_counter()
                timing.tell_wait(callbacks.callbacks)
                callbacks.on_predict_chunk_end(done)
            if owner.stop_predicting and not agreement.active:
                break
    if feed.ended is not None:
        warn(feed.ended)
    callbacks.on_predict_chunk_end(done)
    callbacks.on_predict_end()
    return sink.result()
