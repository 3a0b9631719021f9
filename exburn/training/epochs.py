"""The epochs of one ``fit``: training, validation, hooks, and points to resume from."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator
from typing import Any, TypeGuard

import jax
import numpy as np

from exburn.callbacks import TerminateOnNaN
from exburn.callbacks.contract import CallbackList
from exburn.errors import warn
from exburn.module.building import spec_like
from exburn.runtime.device import waking
from exburn.runtime.donation import copies
from exburn.runtime.kept_memory import kept_memory
from exburn.runtime.placement import bound_to
from exburn.runtime.signals import allow_signals, defer_signals
from exburn.training import memory
from exburn.training.agreement import Chunks
from exburn.training.averaging import keep_average, use_average
from exburn.training.checkpoint.provenance import Provenance
from exburn.training.checkpoint.resume import Resume
from exburn.training.checkpoint.run_points import Checkpointing
from exburn.training.chunk_loop import GLANCE, Call, ChunkHandler, run_chunks
from exburn.training.feed.base import ArrayFeed, Feed
from exburn.training.feed.chunk import Chunk
from exburn.training.feed.chunking import phase_of
from exburn.training.inference import evaluate
from exburn.training.loss_watch import LossWatch
from exburn.training.objective.readings import Readings
from exburn.training.prepare import Preparer
from exburn.training.requests import FitRequest
from exburn.training.timing import Timing

_TRIED_BYTES = 64 << 20  # of a state that is copied, to begin before data are looked at
_ENDED = """{}: training ends here.
  → Lower steps_per_epoch or epochs, or let the source repeat."""


class Epochs(ChunkHandler):
    """One run through the epochs, and what goes on around its chunks.

    Args:
        resume: The run that is taken up, if one is; its state is restored already.
    """

    timing: Timing
    place = "epoch"

    def __init__(
        self,
        preparer: Preparer,
        feed: Feed,
        validation_feed: Feed | None,
        *,
        request: FitRequest,
        callbacks: CallbackList,
        owner: Any,
        resume: Resume | None,
        earlier: int,
        provenance: Provenance | None = None,
    ):
        self.feed, self.validation_feed = feed, validation_feed
        self.holder, self.preparer = preparer.holder, preparer
        self.request, self.callbacks = request, callbacks
        self.owner, self.resume = owner, resume
        self._earlier = earlier
        self.programs, self.timing = self.preparer.programs, Timing()
        self.points = Checkpointing(
            preparer, callbacks, owner, feed, validation_feed, resume, provenance
        )
        super().__init__(self.points.agreement)
        self._loss_watch = LossWatch(
            # A line search ends at the optimum, and stays there.
            trains=bool(self.holder.arrays[0]) and not self.holder.optimizer.searches,
            # It tells by itself.
            nan=not any(isinstance(c, TerminateOnNaN) for c in callbacks.callbacks),
        )
        self._epoch = self._last = 0
        self._begins_light = self._ends_light = self._reads = False
        self._readings: Readings | None = None  # of the last chunk
        # What the bar shows with the next chunk: not to wait for the device.
        self._pending: tuple[int, Readings] | None = None
        self._fresh: Any = None  # totals before an epoch, which programs do not consume

    def events(self) -> Generator[None, None, None]:
        """Runs the epochs; the module holds the latest arrays, whatever ends them.

        It pauses after each chunk and each epoch, when their hooks have run.
        """
        holder, preparer, resume = self.holder, self.preparer, self.resume
        if waking():
            self._compile_training()
        state = preparer.initial_state(getattr(self.feed.dataset, "tree", ()))
        state = holder.own(state) if resume is None else resume.state_for_hooks(state)
        self._fresh = state.metrics
        with self.points, holder.telling(self.callbacks), kept_memory():
            holder.begin_run(state)
            try:
                with allow_signals():
                    first, last, logs = self._begin()
                    if first < last and self.request.validates(first):
                        self._compile_validation()
                    for epoch in range(first, last):
                        chunks = self._begin_epoch(epoch)
                        if chunks is not None:
                            yield from run_chunks(chunks, self)
                            means = self._end_chunks()
                        else:  # the saved run had been stopped within this epoch
                            assert self._readings is not None
                            means = preparer.read_logs(self._readings)
                        if means is not None:  # else no data came any more
                            logs = self._end_epoch(epoch, means)
                            yield
                            self.points.after_epoch(epoch, self.done, logs)
                        if self.feed.ended is not None:
                            warn(_ENDED.format(self.feed.ended))
                            break
                        if self.agreement.stops():
                            break
                    keep_average(holder)
                    light = self.callbacks.only_shows("on_train_end")
                    holder.call_hook(self.callbacks.on_train_end, logs, light=light)
            finally:
                try:
                    with allow_signals():  # a reader may never come back
                        self._close()
                finally:
                    use_average(holder, False)
                    holder.end_run()

    def _begin(self) -> tuple[int, int, dict[str, Any]]:
        """Tells that training begins: the first epoch, the end, and what was logged."""
        holder, resume = self.holder, self.resume
        first, last = self.request.initial_epoch, self.request.epochs
        light = self.callbacks.only_shows("on_train_begin")
        holder.call_hook(self.callbacks.on_train_begin, light=light)
        logs: dict[str, Any] = {}
        if resume is not None:
            holder.state, logs = resume.state(self.callbacks), resume.logs
            first = resume.epoch
            if self.owner.stop_training and not resume.within:
                last = first
        self._last = last - 1
        return first, last, logs

    def _close(self) -> None:
        # It refers to this object, and this to it: the data would stay until Python
        # looks for garbage.
        self.preparer.chunk = None
        self.feed.waiting = lambda: None
        self.feed.close()
        if self.validation_feed is not None:
            self.validation_feed.close()

    def _compile_training(self) -> None:
        """Traces its program and begins to compile it, while a GPU is being started."""
        feed, preparer = self.feed, self.preparer
        fresh = self.resume is None and not self.holder.step
        if fresh and self._compiles_ahead(feed) and not preparer.owns("train"):
            chunk, state = feed.first_specs(), memory.state_specs(preparer, "train")
            program = getattr(self.programs, chunk.program)
            program.begin_compiling(state, *chunk.arguments)

    def _compile_validation(self) -> None:
        """Begins to compile it, so that the processor's cores do so while it trains."""
        holder, preparer, feed = self.holder, self.preparer, self.validation_feed
        if feed is None or not self._compiles_ahead(feed):
            return
        if preparer.passes.times_convolutions:
            return
        chunk, specs = feed.first_specs(), jax.tree.map(spec_like, holder.arrays)
        arguments = preparer.fresh_totals("test"), *chunk.arguments, np.int32(0)
        self.programs.evaluate.begin_compiling(specs, *arguments)

    def _compiles_ahead(self, feed: Feed) -> TypeGuard[ArrayFeed]:
        if not isinstance(feed, ArrayFeed) or self.preparer.eager or feed.own_data:
            return False
        # For arrays that someone has placed it would have to be told where they are.
        return not bound_to((self.holder.arrays, feed.dataset.tree))

    def _hook(self, hook: Callable, *args: Any) -> None:
        self.holder.call_hook(hook, *args, light=self.callbacks.light)

    def _begin_epoch(self, epoch: int) -> Chunks | None:
        """Tells that an epoch begins; returns its chunks that are still to be done."""
        holder, resume, timing = self.holder, self.resume, self.timing
        feeds = self.feed, self.validation_feed
        self._epoch = epoch
        timing.begin(sum(feed.pop_wait() for feed in feeds if feed is not None))
        holder.epochs = self._earlier + epoch + 1
        self._hook(self.callbacks.on_epoch_begin, epoch)
        start = 0
        if resume is not None and resume.within and epoch == resume.epoch:
            holder.state, start = resume.state(self.callbacks), resume.batch
            self.callbacks.resume_at(start)
        else:
            with defer_signals():
                use_average(holder, False)  # of parameters that were trained until now
                frozen = self.preparer.follow_freezing()
            assert holder.running is not None
            if frozen:
                self.programs, self._fresh = (
                    self.preparer.programs,
                    holder.running.metrics,
                )
            holder.running = holder.running.replace(metrics=self._fresh)
        self.points.begin_epoch(start)
        return self._chunks(epoch, start)

    def _chunks(self, epoch: int, start: int) -> Chunks | None:
        """The chunks of an epoch; ``None`` if a saved run had been stopped in it."""
        holder, callbacks = self.holder, self.callbacks
        ends = "on_train_batch_end", "on_batch_end"
        begins = "on_train_batch_begin", "on_batch_begin"
        self.hears = callbacks.hears_batches("train")
        self.glances = callbacks.listens("on_chunk_end")
        self._begins_light = callbacks.light_in(*begins)
        self._ends_light = callbacks.light_in(*ends)
        self._reads = callbacks.reads_logs(*ends)
        self.done, self._pending = start, None
        self.flight.clear()
        assert holder.running is not None
        # A run that is taken up within an epoch may have no chunk left of it.
        totals = holder.running.metrics
        self._readings = self.programs.steps.results(totals) if start else None
        if start and self.owner.stop_training:
            return None
        phase = phase_of(self.preparer, self.feed.group, start)
        self.feed.waiting = self._wait
        is_last = epoch == self._last
        chunks = self.feed.epoch(holder.seed, epoch, phase, start, last=is_last)
        return self.agreement.chunks(chunks, GLANCE, "fit", self._follow)

    def _end_epoch(self, epoch: int, logs: dict[str, Any]) -> dict[str, Any]:
        """Validates, and tells that an epoch is over; returns what it logged."""
        timing = self.timing
        if self.validation_feed is not None and self.request.validates(epoch):
            self._follow()
            with timing.on("validation"):
                means = evaluate(
                    self.preparer,
                    self.validation_feed,
                    self.holder.live_arrays,
                    self.callbacks,
                    self.owner,
                    self.agreement,
                    timing,
                )
            timing.tell_wait(self.callbacks.callbacks)
            self.points.in_validation(epoch, self.done, logs)
            logs |= {f"val_{name}": value for name, value in means.items()}
        self._loss_watch.end_epoch(logs, epoch, self.done)
        self._hook(self.callbacks.on_epoch_end, epoch, logs)
        timing.end()
        return logs

    def _end_chunks(self) -> dict[str, Any] | None:
        """The logs of the epoch; ``None`` if the source gave no batch any more."""
        holder, timing, readings = self.holder, self.timing, self._readings
        if readings is None:
            return None
        if self._epoch == self._last and holder.running is not None:
            # The run's end asks for it, and shall not wait.
            holder.running.step.copy_to_host_async()
        with timing.on("device"):
            if self.agreement.active:
                self.agreement.wait(readings)
            # Not for each chunk: what sends them keeps the next one from being begun.
            logs = self.preparer.read_logs(readings.send())
        if self.glances:
            timing.tell_wait(self.callbacks.callbacks)
            self._show(self.done, dict(logs))
        return logs

    # ------------------------------------------------------------------ each chunk
    def begin(self, chunk: Chunk) -> Call:
        if self.hears:
            hook, light = self.callbacks.on_train_batch_begin, self._begins_light
            self.holder.call_hook(hook, self.done, light=light)
        self._follow()
        state, program = self.holder.running, getattr(self.programs, chunk.program)
        if chunk.prove is not None:
            size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
            run = self._try if size <= _TRIED_BYTES else self._prove
            program = functools.partial(run, program, chunk.prove)
        return program, (state, *chunk.arguments), {"restore": self.holder.restore}

    def _try(self, program: Callable, prove: Callable, *args: Any, **options: Any):
        """Runs a chunk on data that may have changed; again on others if they have."""
        state, data, *places = args
        before = copies(state.replace(metrics=None)).replace(metrics=state.metrics)
        results = program(state, data, *places, **options)
        try:
            current = prove()
        except BaseException:
            self.holder.restore(before)
            raise
        if current is None:
            return results
        self.holder.restore(before)
        return program(before, current, *places, **options)

    def _prove(self, program: Callable, prove: Callable, *args: Any, **options: Any):
        """Runs a chunk once it is known which data it should have."""
        state, data, *places = args
        current = prove()
        return program(state, data if current is None else current, *places, **options)

    def shield(self) -> contextlib.AbstractContextManager[Any]:
        return defer_signals()

    def take(self, chunk: Chunk, results: Any) -> Readings:
        self.holder.state, self._readings = results
        return results[1]

    def call_hooks(self, chunk: Chunk) -> None:
        preparer, callbacks, readings = self.preparer, self.callbacks, self._readings
        assert readings is not None
        preparer.readings, preparer.chunk = readings, chunk
        due = callbacks.is_due("train", self.done - 1)  # else it only counts
        reads = due and self._reads
        logs = preparer.read_logs(readings.send()) if reads else {}
        self._loss_watch.look(logs, self._epoch, self.done)
        hook, light = callbacks.on_train_batch_end, self._ends_light or not due
        self.holder.call_hook(hook, self.done - 1, logs, light=light)

    def after(self) -> bool:
        assert self._readings is not None
        self.preparer.chunk = None  # it holds data on the device
        self.points.after_chunk(self._epoch, self.done, self._readings)
        # Where all must know it, the loop ends before the next chunk.
        return self.owner.stop_training and not self.agreement.active

    def wait(self) -> None:
        with self.timing.on("device"):
            super().wait()

    def works(self) -> bool:
        return bool(self.flight) and not _is_done(self.flight[-1])

    def glance(self) -> None:
        self.timing.tell_wait(self.callbacks.callbacks)
        self._show_pending()
        assert self._readings is not None
        self._pending = self.done, self._readings

    def _wait(self) -> None:
        """The next chunk is not there yet: the progress bar shows that time passes."""
        callbacks = self.callbacks
        self.timing.tell_wait(callbacks.callbacks)
        pending = None if self.agreement.active else self._pending
        if pending is not None and _is_done(pending[1]):
            self._show_pending()
        light = callbacks.light_in("on_data_wait")
        self.holder.call_hook(callbacks.on_data_wait, light=light)

    def _show_pending(self) -> None:
        if self._pending is not None:
            (done, means), self._pending = self._pending, None
            self._show(done, self.preparer.read_logs(means))

    def _show(self, done: int, logs: dict[str, float]) -> None:
        self._loss_watch.look(logs, self._epoch, done)
        hook, light = self.callbacks.on_chunk_end, self.callbacks.light_in
        self.holder.call_hook(hook, done, logs, light=light("on_chunk_end"))

    def _follow(self) -> None:
        """Goes on with what hooks have changed, if one has run."""
        if self.holder.hooked:
            self.holder.hooked = False
            with defer_signals():
                self.preparer.follow()
            self.programs = self.preparer.programs


def _is_done(readings: Readings) -> bool:
    """Whether the device has computed what it was given last."""
    values: list[Any] = jax.tree.leaves(readings)
    return all(v.is_ready() for v in values if isinstance(v, jax.Array))  # type: ignore[attr-defined]
