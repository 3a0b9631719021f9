"""Evaluation and prediction: chunks in, means or outputs out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from exburn.callbacks.contract import CallbackList
from exburn.errors import warn
from exburn.runtime.transfer import batch_number
from exburn.training.agreement import Agreement
from exburn.training.chunk_loop import GLANCE, Call, ChunkHandler, run_chunks
from exburn.training.feed.base import Feed, RaggedFeed
from exburn.training.feed.chunk import Chunk
from exburn.training.objective.readings import Readings
from exburn.training.output_collector import OutputCollector
from exburn.training.prepare import Preparer
from exburn.training.ragged_outputs import RaggedCollector
from exburn.training.timing import Timing


class _Inference(ChunkHandler):
    """An evaluation or a prediction: its data, and what is told of it."""

    timing: Timing

    def __init__(
        self,
        preparer: Preparer,
        feed: Feed,
        callbacks: CallbackList,
        owner: Any,
        use: str,
        agreement: Agreement,
    ):
        super().__init__(agreement)
        self.preparer, self.holder = preparer, preparer.holder
        self.feed, self.callbacks, self.owner = feed, callbacks, owner
        self._use = use
        self.programs = preparer.programs
        self.hears = callbacks.hears_batches(use)
        self.arrays: Any = None

    def run_feed(self) -> None:
        """Runs all chunks of the data; twice, if they were not what they should be."""
        if self.feed.on_trial:
            glances, self.glances = self.glances, False
            self._run_chunks()
            self.feed.on_trial, self.glances = False, glances
            if self.feed.is_proven:
                return
            self.done = 0
            self.flight.clear()
            self.reset()
        self._run_chunks()

    def reset(self) -> None:
        """Forgets what chunks have given."""
        raise NotImplementedError

    def _run_chunks(self) -> None:
        chunks = self.feed.epoch(self.holder.seed, 0)
        self.timing = Timing(self.feed.pop_wait())
        op = "predict" if self._use == "predict" else "evaluate"
        chunks = self.agreement.chunks(chunks, GLANCE, op)
        with self.holder.telling(self.callbacks):
            for _ in run_chunks(chunks, self):
                pass

    def tell_ended(self) -> None:
        """Warns if the data had fewer batches than they should have had."""
        if self.feed.ended is not None:
            warn(self.feed.ended)

    def tell_wait(self) -> None:
        """Has the progress bar say how long it waited for data."""
        self.timing.tell_wait(self.callbacks.callbacks)


class _Evaluation(_Inference):
    def __init__(self, *args: Any):
        super().__init__(*args)
        self._alone = self.holder.state is None
        self.place = "evaluation" if self._alone else "validation"
        self.glances = self.callbacks.listens("on_test_chunk_end")
        self._reads = self.callbacks.reads_logs("on_test_batch_end")
        self.totals: Any = None
        self.readings: Readings | None = None

    def reset(self) -> None:
        self.totals = self.preparer.fresh_totals("test")
        self.readings = None

    def tell(self, hook: Callable, *args: Any) -> None:
        """Calls a hook; within ``fit`` it sees the weights."""
        light = self._alone or self.callbacks.light_tests
        self.holder.call_hook(hook, *args, light=light)

    def begin(self, chunk: Chunk) -> Call:
        if self.hears:
            self.tell(self.callbacks.on_test_batch_begin, self.done)
        arguments = *chunk.arguments, batch_number(self.done)
        return self.programs.evaluate, (self.arrays, self.totals, *arguments), {}

    def take(self, chunk: Chunk, results: Any) -> Readings:
        self.totals, self.readings = results
        return results[1]

    def call_hooks(self, chunk: Chunk) -> None:
        readings = self.preparer.readings = self.readings
        assert readings is not None
        due = self._reads and self.callbacks.is_due("test", self.done - 1)
        logs = self.preparer.read_logs(readings.send()) if due else {}
        self.tell(self.callbacks.on_test_batch_end, self.done - 1, logs)

    def after(self) -> bool:
        stopped = self.owner.stop_evaluating and not self.agreement.active
        return self.agreement.ends or stopped

    def glance(self) -> None:
        assert self.readings is not None
        logs = self.preparer.read_logs(self.readings)
        if self._alone:  # within fit, its own wait is shown
            self.tell_wait()
        self.show(logs)

    def show(self, logs: dict[str, Any]) -> None:
        """Shows means to what is told of chunks."""
        light = self._alone or self.callbacks.light_in("on_test_chunk_end")
        hook = self.callbacks.on_test_chunk_end
        self.holder.call_hook(hook, self.done, logs, light=light)


def evaluate(
    preparer: Preparer,
    feed: Feed,
    read: Callable[[], tuple],
    callbacks: CallbackList,
    owner: Any,
    agreement: Agreement | None = None,
    epoch: Timing | None = None,
) -> dict[str, Any]:
    """Exact means over the data of a feed.

    Args:
        read: Gives the arrays to evaluate with.
        agreement: That of the ``fit`` whose epoch they validate.
        epoch: That of the epoch which the data validate.
    """
    owner.stop_evaluating = False
    agreement = agreement or Agreement(preparer.holder, owner, "evaluate")
    run = _Evaluation(preparer, feed, callbacks, owner, "test", agreement)
    run.tell(callbacks.on_test_begin)
    run.arrays = read()  # a callback may have put others in their place
    run.totals = preparer.fresh_totals("test")
    run.run_feed()
    if epoch is not None:
        epoch.add_validation(run.timing)
    run.tell_ended()
    assert run.readings is not None  # there is a chunk: no source is empty
    logs = preparer.read_logs(run.readings.send())
    if run.glances:
        run.show(logs)
    run.tell(callbacks.on_test_end, logs)
    return logs


class _Prediction(_Inference):
    place = "prediction"
    glances = True

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.collector = self._make_collector()
        self._outputs: Any = None  # of the last chunk, on the device
        self._reads = self.callbacks.listens("on_predict_batch_end")
        self._first = self.preparer.next_draw()

    def reset(self) -> None:
        self.collector = self._make_collector()

    def _make_collector(self) -> OutputCollector | RaggedCollector:
        if not isinstance(self.feed, RaggedFeed):
            return OutputCollector(self.feed.samples)
        split, x = self.holder.split, self.preparer.batch_specs["predict"][0]
        return RaggedCollector(self.feed, split.survey(split.peek(), x, False))

    def begin(self, chunk: Chunk) -> Call:
        if self.hears:
            self.callbacks.on_predict_batch_begin(self.done)
        start = batch_number(self._first + self.done)
        return self.programs.predict, (self.arrays, chunk.data, chunk.index, start), {}

    def take(self, chunk: Chunk, results: Any) -> None:
        self._outputs = self.holder.placement.local(results)
        self.collector.put(chunk, self._outputs)

    def call_hooks(self, chunk: Chunk) -> None:
        due = self._reads and self.callbacks.is_due("predict", self.done - 1)
        logs = {"outputs": self.collector.rows(chunk, self._outputs)} if due else {}
        self.callbacks.on_predict_batch_end(self.done - 1, logs)

    def after(self) -> bool:
        return self.owner.stop_predicting and not self.agreement.active

    def wait(self) -> None:
        self.flight.popleft()  # the collector waits for outputs

    def glance(self) -> None:
        self.tell_wait()
        self.callbacks.on_predict_chunk_end(self.done)


def predict(preparer: Preparer, feed: Feed, callbacks: CallbackList, owner: Any) -> Any:
    """Outputs for every row, streamed into host memory."""
    owner.stop_predicting = False
    agreement = Agreement(preparer.holder, owner, "predict")
    callbacks.on_predict_begin()
    run = _Prediction(preparer, feed, callbacks, owner, "predict", agreement)
    run.arrays = preparer.holder.split.read()
    run.run_feed()
    run.tell_ended()
    callbacks.on_predict_chunk_end(run.done)
    callbacks.on_predict_end()
    return run.collector.result()
