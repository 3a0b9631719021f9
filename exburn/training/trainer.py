"""Owns the state during a run, feeds the programs, and fires the callbacks."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from exburn import context
from exburn.building import infer, materialize, spec_like
from exburn.callback import CallbackList
from exburn.dataset import ArrayDataset, StreamDataset, check_finite
from exburn.errors import ExBurnError
from exburn.flops import Cost, count
from exburn.layer import Layer
from exburn.optimizers import LossScaleOptimizer
from exburn.symbol import dim, plain
from exburn.training import memory
from exburn.training.averaging import Averaging
from exburn.training.check import Forward, check_ids, ends_in_probabilities, lookups
from exburn.training.checkpointing import Checkpointing
from exburn.training.compiled import CompileLog
from exburn.training.custom import CustomSteps
from exburn.training.feed import ArrayFeed, Chunk, Feed, StreamFeed, count_steps
from exburn.training.interrupt import InterruptGuard
from exburn.training.module import Arrays, SplitModule
from exburn.training.objective import Objective
from exburn.training.plan import (
    Decision,
    chunk_steps,
    decisions,
    grouped,
    power_of_two,
    unrolled,
)
from exburn.training.program import Programs
from exburn.training.resume import Resume
from exburn.training.sink import Sink
from exburn.training.state import TrainState, seed_data
from exburn.training.timing import Timing
from exburn.traversal import iter_modules

__all__ = ["Trainer"]

_IN_FLIGHT = 2  # chunks that are dispatched ahead of the device
_VARIANTS = 4  # sets of programs that are kept, for options that change to and fro
_GLANCE = 0.1  # seconds between two looks at the running means


class Trainer(Averaging):
    """Trains, evaluates and predicts with any ``flax.nnx.Module``.

    Args:
        module: The module; it gets its arrays back after every run, whatever happened.
        objective: Losses and metrics, or ``None`` if the module only predicts.
        optimizer: An ``exburn.optimizers.Optimizer``, or ``None``.
        seed: Seed of shuffling and random layers; the process' seed if ``None``.
        steps_per_execution: Steps of a chunk, or ``"auto"``.
        eager: Runs operation by operation, for debugging.
        auto_scale_loss: Whether the loss is scaled if the module computes in float16.

    Attributes:
        trace_counts: How often each program was traced, and so compiled.
        compilations: What was compiled, when, and why.
        decisions: What was chosen for the last ``fit``.
        seed: The seed in use.
        variant: Names the options of ``fit`` in force; programs are kept for each.
        timing: What the epochs of the last ``fit`` spent their time on.
        history: What the last ``fit`` logged.
        batch_specs: Specs of the last batch that was prepared for, by kind.
    """

    def __init__(
        self,
        module: Any,  # an nnx.Module
        *,
        objective: Objective | None = None,
        optimizer: Any = None,
        seed: int | None = None,
        steps_per_execution: int | str = "auto",
        eager: bool = False,
        auto_scale_loss: bool = True,
    ):
        self.module, self.optimizer = module, optimizer
        self.objective = objective or Objective()
        self.steps_per_execution, self.eager = steps_per_execution, eager
        self._seed, self._auto_scale_loss = seed, auto_scale_loss
        self.trace_counts: Counter[str] = Counter()
        self.compilations = CompileLog()
        self.decisions: list[Decision] = []
        self.opt_state: Any = None
        self.step = 0
        self._split: SplitModule | None = None
        self.custom: CustomSteps | None = None
        self._programs: dict[Any, Programs] = {}
        self.variant: Any = None
        self.timing = Timing()
        self.batch_specs: dict[str, tuple] = {}
        self._forwards: dict[str, Forward] = {}
        self._seen: Forward | None = None
        self._totals: Any = None
        self.state: TrainState | None = None
        if optimizer is not None:
            optimizer.bind(self._get_opt_state, self._set_opt_state)
            self._scale_loss()

    @property
    def seed(self) -> int:
        return context.global_seed() if self._seed is None else self._seed

    def reseed(self, seed: int) -> None:
        """Goes on with the seed of another run."""
        self._seed = seed

    def _get_opt_state(self) -> Any:
        return self.opt_state if self.state is None else self.state.opt_state

    def _set_opt_state(self, value: Any) -> None:
        if self.state is None:
            self.opt_state = value
        else:
            self.state = self.state.replace(opt_state=value)

    def _scale_loss(self) -> None:
        """Puts a LossScaleOptimizer around that of a module that needs one.

        A model's own step must scale its loss itself, so it gets none by itself.
        """
        optimizer = self.optimizer
        if optimizer is None or optimizer.scales_loss or not self._auto_scale_loss:
            return
        if callable(getattr(self.module, "train_step", None)):
            return
        if not any(
            isinstance(module, Layer) and module.compute_dtype == "float16"
            for _, module in iter_modules(self.module)
        ):
            return
        self.optimizer, self._programs = LossScaleOptimizer(optimizer), {}
        if self.opt_state is not None:
            self.opt_state = self.optimizer.around(self.opt_state)
        self.optimizer.bind(self._get_opt_state, self._set_opt_state)

    # ------------------------------------------------------------------ preparation
    def prepare(self, batch: tuple, *, names=None, kind: str = "train") -> Any:
        """Builds the module for the batch's shapes and checks them; nothing compiles.

        Args:
            batch: ``(x, y, sample_weight)`` of specs or arrays.
            names: Function of the outputs' specs: their names in logs.
            kind: ``"train"``, ``"test"`` or ``"predict"``.

        Returns:
            Specs of the outputs; ``None`` if the model's own step takes the batch.
        """
        x, y, w = jax.tree.map(spec_like, batch)
        self.batch_specs.pop(kind, None)
        own = callable(getattr(self.module, f"{kind}_step", None))
        unbuilt = isinstance(self.module, Layer) and not self.module.built
        if unbuilt and own and not self.module.callable:
            self.module.built = True  # its parts are called by its own step alone
        elif unbuilt:
            free = jax.tree.map(
                lambda s: jax.ShapeDtypeStruct((dim(0), *s.shape[1:]), s.dtype), x
            )
            leaves, treedef = jax.tree.flatten(free)
            infer(
                self.module,
                lambda values: ((jax.tree.unflatten(treedef, values),), {}),
                leaves,
            )
        if isinstance(self.module, Layer):
            materialize(self.module, self.seed)
        self._scale_loss()
        split = SplitModule(self.module)
        old = self._split
        if (
            old is not None
            and old.params == split.params
            and (old.graphdef == split.graphdef)
        ):
            split = old
        else:
            self._keep_slots(old, split)
            self._split, self._programs, self._forwards = split, {}, {}
            self.custom = CustomSteps(split, self.optimizer)
        if own:
            self._prepare_own(kind, (x, y, w))
            self.batch_specs[kind] = x, y, w
            return None
        seen = self._forward(x)
        if kind != "predict":
            named = names(seen.outputs) if names else None
            self.objective.build(seen.outputs, y, w, named, seen.probabilities)
        self.batch_specs[kind] = x, y, w
        return seen.outputs

    def _prepare_own(self, kind: str, batch: tuple) -> None:
        """Traces the model's own step once, abstractly: its errors come now."""
        assert self._split is not None and self.custom is not None
        if self.module.callable and self.objective.given and batch[1] is not None:
            seen = self._forward(batch[0])  # the step may use the compiled metrics
            _, y, w = batch
            self.objective.build(seen.outputs, y, w, None, seen.probabilities)
        if kind == "train":
            state = self.initial_state()
        else:
            state = self._split.read()
        self.custom.discover(kind, jax.tree.map(spec_like, state), batch)

    def _forward(self, x: Any) -> Forward:
        """What one abstract forward pass tells; traced once for each shape."""
        assert self._split is not None
        key = repr(x)
        if key not in self._forwards:
            split, groups = self._split, self._split.read()

            told: dict[str, Any] = {}

            def forward(groups, x):
                key = jax.random.key(0)
                out, _, pass_ = split.forward(groups, x, training=True, key=key)
                told["losses"] = len(pass_.losses)
                told["lookups"] = lookups(x, pass_)
                return out

            groups = jax.tree.map(spec_like, groups)
            try:
                jaxpr, specs = jax.make_jaxpr(forward, return_shape=True)(groups, x)
            except ExBurnError as error:
                plain(error)
                raise
            told["probabilities"] = ends_in_probabilities(jaxpr)
            self._forwards[key] = Forward(count(jaxpr), specs, **told)
        self._seen = self._forwards[key]
        return self._seen

    def _keep_slots(self, old: SplitModule | None, new: SplitModule) -> None:
        """After freezing or unfreezing, parameters that stay keep their slots."""
        if self.opt_state is None or old is None or old.params == new.params:
            return
        self._refit(new)

    def aim(self, objective: Objective) -> None:
        """Trains for other losses and metrics from now on; the optimizer goes on."""
        self.objective, self._programs, self._totals = objective, {}, None

    def refit_state(self) -> None:
        """Fits the optimizer's state to options that changed it: slots that stay do."""
        if self.opt_state is not None and self._split is not None:
            self._refit(self._split)

    def _refit(self, split: SplitModule) -> None:
        fresh = self.optimizer.init(split.read()[0])
        kept = dict(jax.tree_util.tree_leaves_with_path(self.opt_state))
        self.opt_state = jax.tree_util.tree_map_with_path(
            lambda path, leaf: (
                kept[path] if path in kept and kept[path].shape == leaf.shape else leaf
            ),
            fresh,
        )

    @property
    def programs(self) -> Programs:
        """The programs of the module and the optimizer as they are now."""
        assert self._split is not None
        key = (self.variant, getattr(self.optimizer, "revision", 0))
        if key not in self._programs:
            while len(self._programs) >= _VARIANTS:
                del self._programs[next(iter(self._programs))]
            self._programs[key] = Programs(
                self._split,
                self.objective,
                self.optimizer,
                self.trace_counts,
                custom=self.custom,
                unroll=self._unroll(),
                eager=self.eager,
                log=self.compilations,
            )
        return self._programs[key]

    def _unroll(self) -> int:
        costs = [forward.cost for forward in self._forwards.values()]
        return unrolled(costs[0], jax.default_backend()) if costs else 1

    def initial_state(self) -> TrainState:
        """The state that the next run starts from: the module's own arrays."""
        assert self._split is not None
        params, frozen, others = self._split.read()
        if self.opt_state is None:
            self.opt_state = self.optimizer.init(params)
        return TrainState(
            params,
            frozen,
            others,
            self.opt_state,
            self.fresh_totals("train"),
            jax.device_put(np.int32(self.step)),
            seed_data(self.seed),
        )

    @property
    def arrays(self) -> tuple[Arrays, Arrays, Arrays]:
        """Parameters, frozen ones and others, of a prepared module or a run under way.

        For their shapes: those of a run may be consumed.
        """
        assert self._split is not None
        return self._split.read() if self.state is None else self._live_arrays()

    def held_bytes(self, kind: str) -> int:
        """Bytes of what is on the device already and a program would work on."""
        held: list[Any] = [self.arrays]
        if kind == "train":
            held.append(self._get_opt_state())
        return sum(leaf.nbytes for leaf in jax.tree.leaves(held))

    def _owns(self, kind: str) -> bool:
        return self.custom is not None and self.custom.has(kind)

    def fresh_totals(self, kind: str) -> Any:
        if self._owns(kind):
            return jax.device_put(self.custom.fresh(kind))  # type: ignore[union-attr]
        return jax.device_put(self.objective.init())

    @property
    def names(self) -> list[str]:
        """Names of the logs of ``fit``."""
        if self._owns("train"):
            return self.custom.names("train")  # type: ignore[union-attr]
        return self.objective.names

    def _steps(self, x: Any, batch_bytes: int, resident: bool) -> int:
        if self.steps_per_execution != "auto":
            return int(self.steps_per_execution)
        platform = jax.default_backend()
        if self.eager:
            return 1
        cost = self._cost(x)
        return chunk_steps(cost, platform, batch_bytes, resident)

    def _cost(self, x: Any) -> Cost:
        """Cost of a forward pass; a guess where only the model's own step runs."""
        if self._owns("train"):
            return Cost(flops=1e9, convolutions=1)
        return self._forward(x).cost

    def feed(
        self,
        dataset: ArrayDataset | StreamDataset,
        batch_size: int,
        *,
        training: bool,
        shuffle: bool | str = False,
        steps: int | None = None,
        most: int | None = None,
        reused: bool = False,
        resume: Resume | None = None,
        resident: bool | None = None,
    ) -> Feed:
        """Cuts a data set into chunks for the programs."""
        exact = self._exact(training)
        plan = resume.plan if resume is not None and most is None else None
        if isinstance(dataset, StreamDataset):
            first = dataset.peek(0, self.seed)
            x = jax.tree.map(spec_like, first[0])
            size = sum(v.nbytes for v in jax.tree.leaves(first))
            longest = most or self._steps(x, size, False)
            longest, group = self._grouped(longest, training and most is None, plan)
            return StreamFeed(
                dataset,
                longest,
                steps=steps,
                exact_rows=exact,
                seed=self.seed,
                group=group,
            )
        rows = min(batch_size, dataset.size)
        if resident is None:
            resident = reused and memory.fits_device(dataset.nbytes)
        x = jax.tree.map(
            lambda v: jax.ShapeDtypeStruct((rows, *v.shape[1:]), v.dtype),
            dataset.tree[0],
        )
        size = max(1, dataset.nbytes // dataset.size * rows)
        longest = most or self._steps(x, size, resident)
        longest, group = self._grouped(longest, training and most is None, plan)
        return ArrayFeed(
            dataset,
            batch_size,
            longest,
            shuffle=shuffle,
            exact_rows=exact,
            resident=resident,
            few_shapes=not training and not resident,
            fixed=bool(most or plan) or self.steps_per_execution != "auto",
            steps=steps,
            group=group,
            phase=self._phase(group, 0 if resume is None else resume.batch),
        )

    def _grouped(
        self, steps: int, allowed: bool, plan: dict[str, int] | None = None
    ) -> tuple[int, int]:
        """Steps of a chunk, and of them those that make one update.

        A resumed run keeps its plan, and so its last bits.
        """
        if plan is not None and plan["group"] in (1, self.optimizer.accumulate):
            return plan["length"], plan["group"]
        group = self.optimizer.accumulate if allowed else 1
        missing = self.opt_state is not None and "accumulated" not in self.opt_state
        if group == 1 or missing or self._owns("train"):
            return steps, 1
        whole = grouped(steps, group)
        return (whole, group) if whole else (steps, 1)

    def _phase(self, group: int, done: int) -> int:
        """Steps of a group of accumulated gradients that waited for its others when
        the epoch began, of which ``done`` steps are done."""
        state = self._get_opt_state() if group > 1 else None
        sums = None if state is None else state.get("accumulated")
        return 0 if sums is None else (int(sums["batches"]) - done) % group

    def _exact(self, training: bool) -> bool:
        """Whether a short batch runs at its own size instead of padded."""
        own_loss = getattr(self.module, "own_compute_loss", None) is not None
        own_step = self._owns("train" if training else "test")
        return self.objective.exact_rows or own_loss or own_step

    # ------------------------------------------------------------------ fit
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
        validation_epochs: Any = lambda epoch: True,
        callbacks: CallbackList,
        owner: Any,
        resume: Resume | None = None,
        resident: bool | None = None,
    ) -> None:
        """Runs the epochs; the module holds the latest arrays when this returns."""
        assert self._split is not None
        split = self._split
        if resume is not None:
            given = {"shuffle": shuffle, "steps": steps, "most": 1}
            resume.check(self.feed(dataset, batch_size, training=True, **given))
            resume.restore(self, callbacks)
        self.optimizer.set_epochs(count_steps(dataset, batch_size, steps), epochs)
        programs = self.programs
        feed = self.feed(
            dataset,
            batch_size,
            training=True,
            shuffle=shuffle,
            steps=steps,
            most=callbacks.chunk_limit(),
            reused=True,
            resume=resume,
            resident=resident,
        )
        held = None
        if validation is not None:
            held = self.feed(
                validation,
                validation_batch_size or batch_size,
                training=False,
                steps=validation_steps,
                most=callbacks.batch_interval("test"),
                reused=epochs - initial_epoch > 1,
            )
        self.fitted = dataset, batch_size, steps
        costs = [forward.cost for forward in self._forwards.values()]
        asked = self.steps_per_execution
        self.decisions = decisions(
            feed, costs[0] if costs else None, self._unroll(), asked
        )
        owner.stop_training = resume is not None and resume.stop
        if resume is not None:
            resume.go_on(feed, held)
        points = Checkpointing(self, callbacks, owner, feed, held, resume)
        self.timing = Timing()
        self.state = self.initial_state()
        with InterruptGuard() as guard, points:
            try:
                self._call(callbacks.on_train_begin, light=callbacks.light)
                logs: dict[str, float] = {}
                if resume is not None:
                    self.state, logs = resume.state(callbacks), resume.logs
                    initial_epoch = resume.epoch
                    if owner.stop_training and not resume.within:
                        epochs = initial_epoch
                for epoch in range(initial_epoch, epochs):
                    self.timing.begin()
                    self._call(callbacks.on_epoch_begin, epoch, light=callbacks.light)
                    start = 0
                    if resume is not None and resume.within and epoch == resume.epoch:
                        self.state, start = resume.state(callbacks), resume.batch
                        callbacks.resume_at(start)
                    else:
                        totals = self.fresh_totals("train")
                        self.state = self.state.replace(metrics=totals)
                    points.begin_epoch(start)
                    done = self._train_epoch(
                        feed, epoch, programs, callbacks, guard, owner, points, start
                    )
                    with self.timing.on("device"):
                        logs = self._read(programs, self.state.metrics)
                    if held is not None and validation_epochs(epoch):
                        with self.timing.on("validation"):
                            val = self._evaluate(
                                held,
                                self._live_arrays,
                                callbacks,
                                owner,
                                points.termination,
                            )
                        points.in_validation(epoch, done, logs)
                        logs |= {f"val_{name}": v for name, v in val.items()}
                    self._call(
                        callbacks.on_epoch_end, epoch, logs, light=callbacks.light
                    )
                    self.timing.end()
                    points.after_epoch(epoch, done, logs)
                    if owner.stop_training:
                        break
                self.keep_average()
                self._call(callbacks.on_train_end, logs, light=False)
            finally:
                self.use_average(False)
                self.fitted = None
                state, self.state = self.state, None
                split.write(state.params, state.frozen, state.others)
                self.opt_state = state.opt_state
                self.step = int(state.step)

    def _restore(self, state: TrainState) -> None:
        self.state = state

    def _live_arrays(self) -> tuple[Arrays, Arrays, Arrays]:
        """What the module shows: the state's arrays, or averaged parameters."""
        state = self.state
        assert state is not None
        params = state.params if self._shown is None else self._shown
        return params, state.frozen, state.others

    def _train_epoch(
        self, feed, epoch, programs, callbacks, guard, owner, points, start
    ) -> int:
        """Trains on the batches from ``start`` on; returns how many are done."""
        assert self.state is not None
        per_batch = callbacks.batch_interval("train") is not None
        glances = callbacks.listens("on_chunk_end")
        running: deque[jax.Array] = deque()
        done, pending, last = start, None, time.perf_counter()
        if start and owner.stop_training:  # the saved run had been stopped here
            return done
        phase = self._phase(feed.group, start)
        chunks = feed.epoch(self.seed, epoch, phase, start)
        with contextlib.closing(chunks):
            for chunk in self.timing.data(chunks):
                if per_batch:
                    self._call(callbacks.on_train_batch_begin, done)
                name = "train_groups" if chunk.grouped else "train"
                arguments = chunk.data, chunk.index, chunk.count
                guard.begin()
                try:
                    self.state, loss = memory.run_safely(
                        programs, name, self.state, arguments, self._restore
                    )
                finally:
                    guard.end()
                assert self.state is not None
                done += chunk.steps
                if per_batch:
                    logs = self._read(programs, self.state.metrics)
                    self._call(callbacks.on_train_batch_end, done - 1, logs)
                points.after_chunk(epoch, done, programs)
                if per_batch and owner.stop_training:
                    break
                assert self.state is not None
                running.append(loss)
                if len(running) > _IN_FLIGHT:
                    with self.timing.on("device"):
                        running.popleft().block_until_ready()
                if glances and time.perf_counter() - last > _GLANCE:
                    last = time.perf_counter()
                    if pending is not None:
                        at, means = pending
                        callbacks.on_chunk_end(at, self._floats(means))
                    pending = (done, programs.results(self.state.metrics))
                    if owner.stop_training:
                        break
        if glances:
            callbacks.on_chunk_end(done, self._read(programs, self.state.metrics))
        return done

    def _call(self, hook, *args, light: bool = False) -> None:
        """Runs a hook; unless it is light, it sees and may change the weights."""
        if light:
            hook(*args)
            return
        assert self._split is not None and self.state is not None
        split = self._split
        split.write(*self._live_arrays())
        hook(*args)
        shown = self._live_arrays()
        changed = split.changed(*shown)
        if changed is not None:
            params, frozen, others = changed
            if self._shown is not None and split.changed(self._shown) is None:
                params = self.state.params
            self.state = self.state.replace(params=params, frozen=frozen, others=others)

    def _read(self, programs: Programs, totals: Any) -> dict[str, Any]:
        return self._floats(programs.results(totals))

    def _floats(self, results: Any) -> dict[str, Any]:
        """Python floats in the order of the logs; other values stay NumPy arrays."""
        host = jax.device_get(results)
        order = [n for n in (*self.names, *self.objective.names) if n in host]
        return {
            name: float(host[name]) if np.ndim(host[name]) == 0 else host[name]
            for name in dict.fromkeys([*order, *host])
        }

    # ------------------------------------------------------------------ evaluate
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
        assert self._split is not None
        feed = self.feed(
            dataset,
            batch_size,
            training=False,
            steps=steps,
            most=callbacks.batch_interval("test"),
        )
        return self._evaluate(feed, self._split.read, callbacks, owner)

    def _evaluate(
        self, feed: Feed, read: Callable[[], tuple], callbacks, owner, termination=None
    ) -> dict[str, Any]:
        programs = self.programs
        owner.stop_evaluating = False
        callbacks.on_test_begin()
        arrays = read()  # a callback may have put others in their place
        per_batch = callbacks.batch_interval("test") is not None
        glances = callbacks.listens("on_test_chunk_end")
        totals, done, last = self.fresh_totals("test"), 0, time.perf_counter()
        flight: deque[jax.Array] = deque()
        chunks = feed.epoch(self.seed, 0)
        with contextlib.closing(chunks):
            for chunk in chunks:
                if per_batch:
                    callbacks.on_test_batch_begin(done)
                totals, token = programs.evaluate(
                    arrays,
                    totals,
                    chunk.data,
                    chunk.index,
                    chunk.count,
                    np.int32(done),
                )
                done += chunk.steps
                flight.append(token)
                if len(flight) > _IN_FLIGHT:
                    flight.popleft().block_until_ready()
                if per_batch:
                    callbacks.on_test_batch_end(done - 1, self._read(programs, totals))
                if glances and time.perf_counter() - last > _GLANCE:
                    last = time.perf_counter()
                    callbacks.on_test_chunk_end(done, self._read(programs, totals))
                if owner.stop_evaluating or (termination and termination.requested):
                    break
        logs = self._read(programs, totals)
        if glances:
            callbacks.on_test_chunk_end(done, logs)
        callbacks.on_test_end(logs)
        return logs

    # ------------------------------------------------------------------ predict
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
        assert self._split is not None
        feed = self.feed(
            dataset,
            batch_size,
            training=False,
            steps=steps,
            most=callbacks.batch_interval("predict"),
        )
        programs = self.programs
        owner.stop_predicting = False
        callbacks.on_predict_begin()
        arrays = self._split.read()
        per_batch = callbacks.batch_interval("predict") is not None
        sink = Sink(feed.samples)
        done, last = 0, time.perf_counter()
        chunks = feed.epoch(self.seed, 0)
        with contextlib.closing(chunks):
            for chunk in chunks:
                if per_batch:
                    callbacks.on_predict_batch_begin(done)
                out = programs.predict(arrays, chunk.data, chunk.index, np.int32(done))
                sink.put(chunk, out)
                done += chunk.steps
                if per_batch:
                    callbacks.on_predict_batch_end(done - 1)
                if time.perf_counter() - last > _GLANCE:
                    last = time.perf_counter()
                    callbacks.on_predict_chunk_end(done)
                if owner.stop_predicting:
                    break
        callbacks.on_predict_chunk_end(done)
        callbacks.on_predict_end()
        return sink.result()

    # ------------------------------------------------------------------ one batch
    def run_batch(
        self, batch: tuple, *, train: bool, fresh: bool = False
    ) -> dict[str, Any]:
        """One step on one batch; totals go on until they are reset.

        Args:
            batch: ``(x, y, sample_weight)``.
            train: Whether the parameters are updated.
            fresh: Returns this batch's values; the running ones stay as they are.
        """
        if fresh:
            running, self._totals = self._totals, None
            try:
                return self.run_batch(batch, train=train)
            finally:
                self._totals = running
        assert self._split is not None
        split, programs = self._split, self.programs
        if self._totals is None:
            self._totals = self.fresh_totals("train" if train else "test")
        for chunk in self._one(batch, train):
            data, number = chunk.data, chunk.count
            if not train:
                totals, self._totals = self._totals, None  # consumed, if it fails
                self._totals, _ = programs.evaluate(
                    split.read(), totals, data, None, number, np.int32(0)
                )
                continue
            state = self.initial_state().replace(metrics=self._totals)
            kept = [state]
            try:
                kept[0], _ = memory.run_safely(
                    programs, "train", state, (data, None, number), kept.append
                )
            finally:
                self.adopt(kept[-1])
                self._totals = kept[-1].metrics
            self.step += 1
        return self._read(programs, self._totals)

    def adopt(self, state: TrainState) -> None:
        """Gives the module and the optimizer the arrays of a state."""
        assert self._split is not None
        self._split.write(state.params, state.frozen, state.others)
        self.opt_state = state.opt_state

    def reset_totals(self) -> None:
        """Starts the running values of ``run_batch`` afresh."""
        self._totals = None

    def forget(self) -> None:
        """Drops programs and optimizer state: the module has other weights now."""
        self._split = self.opt_state = self._totals = None
        self._programs = {}
        self._forwards = {}

    def _one(self, batch: tuple, train: bool) -> Iterator[Chunk]:
        """The batch as a chunk of one step, at one of a few sizes."""
        dataset = ArrayDataset(*batch)
        exact = self._exact(train)
        size = dataset.size if exact else power_of_two(dataset.size)
        rows = np.minimum(np.arange(size), dataset.size - 1)
        data = jax.tree.map(lambda v: jax.device_put(v[None]), dataset.take(rows))
        number = None if exact else (np.array([dataset.size], np.int32),)
        yield Chunk(data, None, number, 1, dataset.size)

    @property
    def minimizes(self) -> bool:
        """Whether there is anything to train on: a loss, or what layers add to it."""
        if self.objective.terms or self._owns("train") or self._seen is None:
            return True
        own_loss = getattr(self.module, "own_compute_loss", None) is not None
        assert self._split is not None
        return own_loss or self._seen.losses > 0 or self._split.regularized

    def check(
        self, batch: tuple, pred_spec: Any, op: str, *, finite: bool, targets: bool
    ) -> None:
        """Checks values on the host: finite, within tables, and fit for the losses.

        Args:
            batch: ``(x, y, sample_weight)``, whole arrays or one batch of a loader.
            pred_spec: What ``prepare`` returned.
            op: The operation named in errors.
            finite: Whether NaN and infinity are looked for.
            targets: Whether the targets are looked at.
        """
        if finite:
            check_finite(batch, op=op)
        if pred_spec is None or self._seen is None:
            return
        check_ids(batch[0], self._seen.lookups, op)
        if targets:
            self.objective.check_targets(batch[1], pred_spec)
