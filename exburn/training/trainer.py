"""Trains, evaluates and predicts: puts state, programs, feeds and loops together."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import jax

from exburn.callbacks.contract import CallbackList
from exburn.data import ArrayDataset, StreamDataset
from exburn.runtime.sharding import processes
from exburn.runtime.signals import allow_signals, defer_signals
from exburn.runtime.transfer import batch_number, device_constant
from exburn.training import inference
from exburn.training.agreement import Agreement, data_facts, fingerprint
from exburn.training.checkpoint.provenance import Provenance, provenance_of
from exburn.training.checkpoint.resume import Resume
from exburn.training.epochs import Epochs
from exburn.training.feed.base import Feed
from exburn.training.feed.chunking import FeedRequest, make_feed, single_chunk
from exburn.training.feed.kept_arrays import KeptArrays, owners_of
from exburn.training.feed.plan import Decision, as_it_ran, decisions, power_of_two
from exburn.training.objective.objective import Objective
from exburn.training.output_collector import OutputCollector
from exburn.training.prepare import Preparer
from exburn.training.requests import FitData, FitRequest
from exburn.training.state_holder import StateHolder
from exburn.training.timing import Timing

Sources = tuple[ArrayDataset | StreamDataset, ArrayDataset | StreamDataset | None]
_SIZES = 2  # of single batches, for programs of their own
_COPIED = 256 << 20  # bytes of a state that may be copied before a chunk on trial


class Trainer:
    """Trains, evaluates and predicts with any ``flax.nnx.Module``.

    The module gets its arrays back after every run, whatever happened.

    Args:
        module: The module; an ``nnx.Module``.
        objective: Losses and metrics, or ``None`` if the module only predicts.
        optimizer: An ``exburn.optimizers.Optimizer``, or ``None``.
        seed: Seed of shuffling and random layers; the process' seed if ``None``.
        auto_scale_loss: Whether the loss is scaled if the module computes in float16.

    Attributes:
        holder: Where the arrays are, and whom they are shown to.
        preparer: The module, made ready for data, and its programs.
        decisions: What was chosen for the last ``fit``.
    """

    def __init__(
        self,
        module: Any,
        *,
        objective: Objective | None = None,
        optimizer: Any = None,
        seed: int | None = None,
        auto_scale_loss: bool = True,
        **options: Any,
    ):
        self.holder = StateHolder(module, optimizer, seed, auto_scale_loss)
        self.preparer = Preparer(self.holder, objective, **options)
        self.decisions: list[Decision] = []
        self.timing = Timing()
        self.fitted: FitData | None = None
        uses = "train", "validation", "test", "predict"
        self.stores = {use: KeptArrays() for use in uses}
        self._sizes: dict[str, list[int]] = {}  # of single batches, by use
        self._small: tuple[Any, bool] | None = None  # see _is_small, and of what
        self._provenance: Provenance | None = None  # of the fit under way
        self._described: Any = None  # what it was made of

    def with_optimizer(self, optimizer: Any) -> Trainer:
        """The same run with another optimizer, whose state begins anew."""
        holder, preparer = self.holder, self.preparer
        new = Trainer(
            holder.module,
            objective=preparer.objective,
            optimizer=optimizer,
            seed=holder.given_seed,
            steps_per_execution=preparer.steps_per_execution,
            unroll=preparer.program_cache.asked_unroll,
            join_batches=preparer.join_batches,
            eager=preparer.eager,
            remat=preparer.program_cache.remat,
            private=preparer.program_cache.private,
            auto_scale_loss=holder.auto_scale_loss,
        )
        new.take_over(self)
        return new

    def take_over(self, other: Trainer) -> None:
        """Goes on with the arrays of another one of the same module."""
        self.holder.placement = other.holder.placement
        self.holder.take_over(other.holder)
        if self.preparer.program_cache.private:  # else a seed would repeat its noise
            self.holder.count_on(other.holder)

    # ------------------------------------------------------------------ whole data
    def begin_fit(
        self,
        request: FitRequest,
        data: FitData,
        *,
        callbacks: CallbackList,
        owner: Any,
        resume: Resume | None = None,
        options: Mapping[str, Any],
    ) -> Epochs:
        """The run of a ``fit``, whose epochs are still to be run."""
        holder = self.holder
        first = request.initial_epoch
        earlier = holder.epochs_before(first)
        holder.optimizer.set_epochs(data.known_steps, request.epochs)
        self._provenance = None  # that of a run that was refused is none of this one
        if resume is not None or callbacks.listens("on_checkpoint"):
            self._begin_provenance(data.sources, options)
        if resume is not None:
            first, earlier = resume.first, resume.earlier
            self._restore(resume, request, data, callbacks)
        order = FeedRequest(
            training=True,
            shuffle=data.shuffle,
            steps=data.steps,
            most=callbacks.chunk_limit(),
            reused=True,
            resume=resume,
            resident=request.resident,
            earlier=earlier,
            first=first,
            store=self.stores["train"],
            owners=owners_of(request.x, request.y, request.sample_weight),
            tries=self._is_small(),
        )
        feed = make_feed(self.preparer, data.dataset, data.batch_size, order)
        validation_feed = None
        if data.validation is not None:
            validation_feed = self._feed(
                "test",
                callbacks,
                data.validation,
                data.validation_batch_size or data.batch_size,
                data.validation_steps,
                reused=request.epochs - request.initial_epoch > 1,
                resident=request.resident,
                store=self.stores["validation"],
                owners=owners_of(request.x, request.validation_data),
            )
        self.decisions = self._decide(feed, validation_feed, callbacks)
        owner.stop_training = resume is not None and resume.stop
        if resume is not None:
            with allow_signals():  # it may read many batches
                resume.go_on(feed, validation_feed)
        run = Epochs(
            self.preparer,
            feed,
            validation_feed,
            request=request,
            callbacks=callbacks,
            owner=owner,
            resume=resume,
            earlier=earlier,
            provenance=self._provenance,
        )
        self._check_alike(run, data)
        self.timing = run.timing
        self.fitted = data
        return run

    def _is_small(self) -> bool:
        """Whether the state may be copied on the device before a chunk on trial."""
        split = self.holder.split
        if self._small is None or self._small[0] is not split:
            self._small = split, self.holder.held_bytes("train") <= _COPIED
        return self._small[1]

    def _restore(
        self,
        resume: Resume,
        request: FitRequest,
        data: FitData,
        callbacks: CallbackList,
    ) -> None:
        """Takes up a run, if its result depends on nothing else than this one's."""
        assert self._provenance is not None
        resume.compare(self._provenance, request.may_differ)
        order = FeedRequest(
            training=True,
            shuffle=data.shuffle,
            steps=data.steps,
            most=1,
            earlier=resume.earlier,
            first=resume.first,
        )
        feed = make_feed(self.preparer, data.dataset, data.batch_size, order)
        resume.check(feed)
        resume.restore(self.preparer, callbacks, request.may_differ)

    def _decide(
        self, feed: Feed, validation_feed: Feed | None, callbacks: CallbackList
    ) -> list[Decision]:
        """The choices that ``explain_plan`` tells of."""
        preparer = self.preparer
        return decisions(
            feed,
            preparer.passes.first_cost(feed.batch_size),
            preparer.program_cache.unroll(training=True),
            steps_asked=preparer.steps_per_execution,
            unroll_asked=preparer.program_cache.asked_unroll,
            join_asked=preparer.join_batches,
            limit=callbacks.chunk_limit(),
            eager=preparer.eager,
            validation_feed=validation_feed,
            placement=self.holder.placement,
            exact_rows=preparer.exact_rows(training=True),
            own=preparer.own_cost("train"),
        )

    def _check_alike(self, run: Epochs, data: FitData) -> None:
        """Raises if the processes of a run are about to train different things."""
        holder, feed, request, resume = self.holder, run.feed, run.request, run.resume
        run.agreement.check_alike(
            lambda: {
                "seed": holder.seed,
                "epochs": (request.initial_epoch, request.epochs),
                "weights": fingerprint(holder.arrays[0]),
                "data": data_facts(data.dataset, feed),
                "steps per call": (feed.length, feed.group, feed.resident),
                "validation data": None if run.validation_feed is None else True,
                "callbacks": [type(c).__name__ for c in run.callbacks.callbacks],
                "resume": None if resume is None else resume.where.name,
            }
        )

    def end_fit(self, feed: Feed, failed: bool = False) -> None:
        """Says how it ran, whatever ended it."""
        self.fitted = None
        self.decisions = as_it_ran(self.decisions, feed)
        if self._provenance is not None:
            self._end_provenance(failed)

    def _begin_provenance(self, sources: Sources, options: Mapping[str, Any]) -> None:
        """Describes what the result depends on; arrays beside the training.

        What hooks of an earlier fit have changed is as it was before that one: in the
        run that is resumed they change it, too.
        """
        provenance = provenance_of(self.preparer, *sources, options)
        rate = "optimizer.learning_rate"
        if self.holder.step and rate not in self.holder.changed_in_fit:
            provenance.leave_out(rate)  # hooks of an unknown fit may have changed it
        provenance.undo(self.holder.changed_in_fit)
        provenance.begin()
        self._provenance, self._described = provenance, (*sources, options)

    def _end_provenance(self, failed: bool) -> None:
        """Notes what hooks have changed."""
        provenance, self._provenance = self._provenance, None
        assert provenance is not None
        provenance.close()
        described, self._described = self._described, None
        if failed and processes.count() > 1:
            return  # another process may be lost, and with it arrays that never come
        now = provenance_of(self.preparer, *described)
        self.holder.changed_in_fit = provenance.changes(now)

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
            return inference.evaluate(
                self.preparer, feed, self.holder.split.read, callbacks, owner
            )

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
            return inference.predict(self.preparer, feed, callbacks, owner)

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
        own = {
            "store": self.stores[use],
            "owners": owners_of(*_tree_of(dataset)),
            "tries": not callbacks.hears_batches(use),
        }
        request = FeedRequest(
            training=False,
            steps=steps,
            most=callbacks.batch_interval(use),
            use=use,
            **own | options,
        )
        feed = make_feed(self.preparer, dataset, batch_size, request)
        op = "predict" if use == "predict" else "evaluate"
        agreement = Agreement(self.holder, None, op)
        agreement.check_alike(lambda: {"data": data_facts(dataset, feed)})
        return feed

    # ------------------------------------------------------------------ one batch
    def run_batch(self, batch: tuple, *, train: bool) -> dict[str, Any]:
        """One step on one batch, and this batch's values."""
        holder, preparer, programs = self.holder, self.preparer, self.preparer.programs
        exact, use = preparer.exact_rows(train), "train" if train else "test"
        rows, placement = self._rows(batch, use, exact), holder.placement
        chunk = single_chunk(batch, rows, exact=exact, placement=placement)
        if not train:
            _, readings = programs.evaluate(
                holder.split.read(),
                preparer.fresh_totals("test"),
                *chunk.arguments,
                device_constant(0),
            )
            return preparer.read_logs(readings.send())
        with defer_signals(), holder.training("train_on_batch"):
            state, done = holder.own(preparer.initial_state(batch)), 0
            states = [state]
            try:
                states[0], readings = programs.train(
                    state, *chunk.arguments, restore=states.append
                )
                done = 1
                readings = readings.send()
            finally:
                holder.adopt(states[-1], holder.step + done)
        return preparer.read_logs(readings)

    def predict_batch(self, batch: tuple) -> Any:
        """Outputs for one batch, on the host."""
        exact = self.preparer.exact_rows(False)
        chunk = single_chunk(batch, self._rows(batch, "predict", exact), exact=exact)
        arrays, sink = self.holder.split.read(), OutputCollector(chunk.samples)
        start = batch_number(self.preparer.next_draw())
        outputs = self.preparer.programs.predict(arrays, chunk.data, None, start)
        sink.put(chunk, self.holder.placement.local(outputs))
        return sink.result()

    def _rows(self, batch: tuple, use: str, exact: bool) -> int:
        """Rows at which a single batch runs: its own, or those of some before it.

        Most loops have batches of one size, and maybe a shorter one; others so many
        that they share programs.
        """
        size = jax.tree.leaves(batch)[0].shape[0]
        if exact:
            return size
        size = self.holder.placement.width(size)
        sizes = self._sizes.setdefault(use, [])
        near = [rows for rows in sizes if size <= rows < 2 * size]
        if not near and len(sizes) < _SIZES:
            sizes.append(size)
            return size
        return self.holder.placement.width(min(near, default=power_of_two(size)))


def _tree_of(dataset: Any) -> tuple:
    """The arrays of a data set; none of a stream."""
    return getattr(dataset, "tree", ())
