"""Trains, evaluates and predicts: puts state, programs, feeds and loops together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax

from exburn.callbacks.contract import CallbackList
from exburn.data import ArrayDataset, StreamDataset
from exburn.runtime.signals import allow_signals, defer_signals
from exburn.runtime.transfer import counted, kept
from exburn.training import inference, memory
from exburn.training.averaging import Averaging
from exburn.training.checkpoint.resume import Resume
from exburn.training.epochs import Epochs
from exburn.training.feed.base import Feed, count_steps
from exburn.training.feed.chunking import make_feed, single_chunk
from exburn.training.feed.plan import Decision, as_it_ran, decisions, power_of_two
from exburn.training.objective.objective import Objective
from exburn.training.output_collector import OutputCollector
from exburn.training.timing import Timing

__all__ = ["Trainer"]

_SIZES = 2  # of single batches, for programs of their own


class Trainer(Averaging):
    """Trains, evaluates and predicts with any ``flax.nnx.Module``.

    The module gets its arrays back after every run, whatever happened.

    Attributes:
        decisions: What was chosen for the last ``fit``.
        timing: What the epochs of the last ``fit`` spent their time on.
    """

    def __init__(self, module: Any, **options: Any):
        super().__init__(module, **options)
        self.decisions: list[Decision] = []
        self.timing = Timing()
        self._sizes: dict[str, list[int]] = {}  # of single batches, by use

    def aim(self, objective: Objective) -> None:
        """Trains for other losses and metrics from now on; the optimizer goes on."""
        self.objective, self._programs, self._beside = objective, {}, {}

    def with_optimizer(self, optimizer: Any) -> Trainer:
        """The same run with another optimizer, whose state begins anew."""
        new = Trainer(
            self.module,
            objective=self.objective,
            optimizer=optimizer,
            seed=self._seed,
            steps_per_execution=self.steps_per_execution,
            unroll=self.asked_unroll,
            join_batches=self.join_batches,
            eager=self.eager,
            auto_scale_loss=self._auto_scale_loss,
        )
        new.take_over(self)
        return new

    def forget(self) -> None:
        """Drops programs and optimizer state: the module has other weights now."""
        self._split = self.opt_state = None
        self._programs = {}
        self._forwards = {}

    # ------------------------------------------------------------------ whole data
    def fit(
        self,
        dataset: ArrayDataset | StreamDataset,
        *,
        batch_size: int,
        epochs: int,
        initial_epoch: int = 0,
        shuffle: bool | str = True,
        steps: int | None = None,
        validation: ArrayDataset | StreamDataset | None = None,
        validation_batch_size: int | None = None,
        validation_steps: int | None = None,
        validation_epochs: Callable[[int], bool] = lambda epoch: True,
        callbacks: CallbackList,
        owner: Any,
        resume: Resume | None = None,
        resident: bool | None = None,
    ) -> None:
        """Runs the epochs; the module holds the latest arrays when this returns."""
        first, earlier = initial_epoch, self.earlier(initial_epoch)
        if resume is not None:
            first, earlier = resume.first, resume.earlier
            given = {"shuffle": shuffle, "steps": steps, "most": 1, "first": first}
            given |= {"earlier": earlier, "training": True}
            resume.check(make_feed(self, dataset, batch_size, **given))
            resume.restore(self, callbacks)
        self.optimizer.set_epochs(count_steps(dataset, batch_size, steps), epochs)
        feed = make_feed(
            self,
            dataset,
            batch_size,
            training=True,
            shuffle=shuffle,
            steps=steps,
            most=callbacks.chunk_limit(),
            reused=True,
            resume=resume,
            resident=resident,
            earlier=earlier,
            first=first,
        )
        held = None
        if validation is not None:
            held = self._feed(
                "test",
                callbacks,
                validation,
                validation_batch_size or batch_size,
                validation_steps,
                reused=epochs - initial_epoch > 1,
                resident=resident,
            )
        self.decisions = decisions(
            feed,
            self.first_cost(feed.batch_size),
            self.unroll(training=True),
            steps_asked=self.steps_per_execution,
            unroll_asked=self.asked_unroll,
            join_asked=self.join_batches,
            limit=callbacks.chunk_limit(),
            eager=self.eager,
            held=held,
        )
        owner.stop_training = resume is not None and resume.stop
        if resume is not None:
            with allow_signals():  # it may read many batches
                resume.go_on(feed, held)
        run = Epochs(
            self,
            feed,
            held,
            callbacks=callbacks,
            owner=owner,
            resume=resume,
            earlier=earlier,
        )
        self.timing = run.timing
        self.fitted = dataset, batch_size, steps
        try:
            run.run(initial_epoch, epochs, validation_epochs)
        finally:
            self.fitted = None
            self.decisions = as_it_ran(self.decisions, feed)

    def evaluate(
        self,
        dataset: ArrayDataset | StreamDataset,
        *,
        batch_size: int,
        steps: int | None,
        callbacks: CallbackList,
        owner: Any,
    ) -> dict[str, Any]:
        """Exact means over the data set."""
        feed = self._feed("test", callbacks, dataset, batch_size, steps)
        with contextlib.closing(feed):
            return inference.evaluate(self, feed, self.split.read, callbacks, owner)

    def predict(
        self,
        dataset: ArrayDataset | StreamDataset,
        *,
        batch_size: int,
        steps: int | None,
        callbacks: CallbackList,
        owner: Any,
    ) -> Any:
        """Outputs for every row, streamed into host memory."""
        feed = self._feed("predict", callbacks, dataset, batch_size, steps)
        with contextlib.closing(feed):
            return inference.predict(self, feed, callbacks, owner)

    def _feed(
        self,
        use: str,
        callbacks: CallbackList,
        dataset: ArrayDataset | StreamDataset,
        batch_size: int,
        steps: int | None,
        **options: Any,
    ) -> Feed:
        """The chunks of an evaluation, ``"test"``, or of a prediction."""
        return make_feed(
            self,
            dataset,
            batch_size,
            training=False,
            steps=steps,
            most=callbacks.batch_interval(use),
            use=use,
            **options,
        )

    # ------------------------------------------------------------------ one batch
    def run_batch(self, batch: tuple, *, train: bool) -> dict[str, Any]:
        """One step on one batch, and this batch's values.

        Args:
            batch: ``(x, y, sample_weight)``.
            train: Whether the parameters are updated.
        """
        split, programs = self.split, self.programs
        exact, use = self.exact_rows(train), "train" if train else "test"
        chunk = single_chunk(batch, self._rows(batch, use, exact), exact=exact)
        if not train:
            _, readings = programs.evaluate(
                split.read(), self.fresh_totals("test"), *chunk.arguments, kept(0)
            )
            return self.read_logs(readings.sent())
        with defer_signals(), self.training("train_on_batch"):
            state, done = self.own(self.initial_state(batch)), 0
            states = [state]
            try:
                states[0], readings = memory.run_safely(
                    programs, "train", state, chunk.arguments, states.append
                )
                done = 1
                readings = readings.sent()
            finally:
                self.adopt(states[-1], self.step + done)
        return self.read_logs(readings)

    def predict_batch(self, batch: tuple) -> Any:
        """Outputs for one batch, on the host."""
        exact = self.exact_rows(False)
        chunk = single_chunk(batch, self._rows(batch, "predict", exact), exact=exact)
        arrays, sink = self.split.read(), OutputCollector(chunk.samples)
        start = counted(self.next_draw())
        outputs = self.programs.predict(arrays, chunk.data, None, start)
        sink.put(chunk, outputs)
        return sink.result()

    def _rows(self, batch: tuple, use: str, exact: bool) -> int:
        """Rows at which a single batch runs: its own, or those of some before it.

        Most loops have batches of one size, and maybe a shorter one; others so many
        that they share programs.
        """
        size = jax.tree.leaves(batch)[0].shape[0]
        if exact:
            return size
        known = self._sizes.setdefault(use, [])
        near = [rows for rows in known if size <= rows < 2 * size]
        if not near and len(known) < _SIZES:
            known.append(size)
            return size
        return min(near, default=power_of_two(size))
