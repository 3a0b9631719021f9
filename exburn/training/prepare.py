"""Makes a module ready for data: built, split, checked and traced, not yet compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax

from exburn.data import has_packed, has_padded, plain_values
from exburn.errors import ArgumentError, ShapeError
from exburn.losses.residual import equation_of
from exburn.module.building import spec_like
from exburn.module.traversal import iter_weights
from exburn.runtime.cost_model import Cost
from exburn.runtime.gc_pause import starting
from exburn.training.custom_step import CustomSteps, own_steps
from exburn.training.feed.chunk import Chunk
from exburn.training.fingerprint import SettingSlot
from exburn.training.forward import Forward
from exburn.training.forward_cache import ForwardCache
from exburn.training.memory import state_specs
from exburn.training.objective.matching import Matching
from exburn.training.objective.objective import Objective
from exburn.training.objective.readings import Readings
from exburn.training.overrides import overrides
from exburn.training.placement import OneDevice
from exburn.training.prepared_cache import PreparedCache, Ready
from exburn.training.program import Programs
from exburn.training.program_cache import ProgramCache
from exburn.training.splitting import Splitter
from exburn.training.state import TrainState
from exburn.training.state_holder import StateHolder

_CALLS, _DRAWS = 1 << 16, 1 << 14  # predictions, and batches, of numbers of their own


class Preparer:
    """A module with its losses, made ready for data, and all that is kept of that.

    Args:
        steps_per_execution: Steps of a chunk, or ``"auto"``.
        unroll: Steps compiled into one turn of a chunk's loop, or ``"auto"``.
        join_batches: Batches that evaluation and prediction run as one, or ``"auto"``.
        remat, private: As of ``ProgramCache``.

    Attributes:
        splitter: Builds and splits the module; its numbers that are arguments.
        passes: What a forward pass tells.
        program_cache: The programs that were made.
        matching: What losses and metrics are matched to.
        custom: The module's own steps.
        readings: What there is of logs, of the last step.
        chunk: What was trained on last, while hooks of batches run.
        batch_specs: Specs of the last batch that was prepared for, by kind.
    """

    def __init__(
        self,
        holder: StateHolder,
        objective: Objective | None = None,
        *,
        steps_per_execution: int | str = "auto",
        unroll: int | str = "auto",
        join_batches: int | str = "auto",
        eager: bool = False,
        remat: str | None = None,
        private: bool = False,
    ):
        self.holder, self.objective = holder, objective or Objective()
        self.steps_per_execution, self.join_batches = steps_per_execution, join_batches
        self.splitter, self.passes = Splitter(holder), ForwardCache(holder)
        options: dict[str, Any] = {"unroll": unroll, "eager": eager}
        options |= {"remat": remat, "private": private}
        cache = ProgramCache(holder, self.splitter, self.passes, **options)
        self.program_cache = cache
        self.custom: CustomSteps | None = None
        self.readings: Readings | None = None
        self.chunk: Chunk | None = None
        self.batch_specs: dict[str, tuple] = {}
        self._ready = PreparedCache()
        self._predictions = 0
        self._names: Any = None  # function of the outputs, for a step of its own
        self.matching = Matching(holder, self._ready)

    @property
    def eager(self) -> bool:
        """Whether programs run operation by operation."""
        return self.program_cache.eager

    def aim(self, objective: Objective) -> None:
        """Trains for other losses and metrics from now on; the optimizer goes on."""
        self.objective = objective
        self.splitter.leave_beside()
        self.program_cache.clear()
        self.program_cache.compilations.begin_anew()

    def forget(self) -> None:
        """Drops programs and optimizer state: the module has other weights now."""
        self.holder.current_split = self.holder.opt_state = None
        self.program_cache.clear()
        self.passes.clear()

    # ------------------------------------------------------------------ for data
    def prepare(
        self,
        batch: tuple,
        *,
        names: Callable[[Any], list[str] | None] | None = None,
        kind: str = "train",
        op: str = "fit",
        check_first: Callable[[], None] = lambda: None,
    ) -> Any:
        """Builds the module for the batch's shapes and checks them; nothing compiles.

        Args:
            check_first: Called where the module is not ready for such a batch yet.

        Returns:
            Specs of the outputs; ``None`` if the model's own step takes the batch.
        """
        if (ready := self.find_ready(kind, batch)) is not None:
            self.recall(kind, ready)
        else:
            check_first()
            with starting():
                ready = self._settle(lambda: self._prepare_once(batch, names, kind))
            self._ready.keep(kind, batch, ready)
        if kind == "train" and not self.minimizes:
            raise ArgumentError(
                op,
                "there is nothing to minimize: compile() received no loss",
                hint='model.compile(optimizer, loss="cross_entropy")',
            )
        return ready.outputs

    def _settle(self, attempt: Callable[[], Any]) -> Any:
        """Tries until the module is what it was when the try began.

        A new argument with which nothing can be traced becomes a constant again.

        Args:
            attempt: Returns ``None`` where it has changed what it began with.
        """
        while True:
            try:
                result = attempt()
            except Exception:
                if not self.splitter.drop_unproven():
                    raise
            else:
                if result is not None:
                    return result

    def _prepare_once(self, batch: tuple, names: Any, kind: str) -> Ready | None:
        """What is ready for a batch; ``None`` if losses read further weights."""
        x, y, w = specs = jax.tree.map(spec_like, batch)
        holder = self.holder
        self.batch_specs.pop(kind, None)
        own = overrides(holder.module, f"{kind}_step")
        for has_rows, rows in (
            (has_padded, "rows of unlike lengths"),
            (has_packed, "packed rows"),
        ):
            if has_rows(x):
                _check_own(holder.module, own, rows)
        self.splitter.build(plain_values(x), own)
        if holder.scale_loss():
            self.program_cache.clear()
        self._split()
        seen: Forward | None = None
        with holder.split.recording() as beside:
            if own:
                self._names = names
                self._prepare_own(kind, specs, names)
                self.matching.purpose = None
            else:
                seen = self.forward(x, kind)
                if kind != "predict":
                    named_op = "fit" if kind == "train" else "evaluate"
                    self.matching.match(self.objective, seen, y, w, names, named_op)
                if self.owns(kind):
                    self._discover(kind, specs)
        if beside:
            self.splitter.take_beside(beside)
            return None
        if kind == "train" and holder.optimizer is not None:
            paths = [path for path, _, _ in iter_weights(holder.module)]
            holder.optimizer.check_paths(paths)
        if kind == "train":
            holder.follow_parameters()
        self._prove(kind, specs)
        self.batch_specs[kind] = specs
        assert self.custom is not None
        return Ready(
            specs,
            seen,
            self.splitter.accept(self.objective.settings),
            holder.split,
            self.objective,
            self.matching.purpose,
            self.objective.built_parts(),
            self.custom.names(kind),
        )

    def find_ready(self, kind: str, batch: tuple) -> Ready | None:
        """What all is prepared as for such a batch, if one of the last was like it."""
        ready = self._ready.find(kind, batch)
        if (
            ready is not None
            and ready.split is self.holder.current_split
            and ready.objective is self.objective
            and (kind == "predict" or self.objective.may_recall(ready.built))
            and ready.fingerprint.holds(self.holder.module)
        ):
            return ready
        return None

    def recall(self, kind: str, ready: Ready) -> None:
        """Goes back to what ``find_ready`` has found."""
        self.batch_specs[kind] = ready.specs
        if kind != "predict":
            self.objective.recall(ready.built)
            self.matching.purpose = ready.built_for
        assert self.custom is not None
        self.custom.recall(kind, ready.logs)
        if ready.seen is not None:
            self.passes.latest = ready.seen

    def forward(self, x: Any, kind: str | None = None) -> Forward:
        """What one abstract forward pass tells; traced once for each shape.

        Args:
            kind: The programs that are asked for short batches, if any are.
        """
        while (forward := self.passes.find(x, kind)) is None:
            if self.splitter.hold(self.passes.trace(x, kind), x):
                self._split()  # the module is another one then
        self.passes.latest = forward
        return forward

    def _split(self) -> None:
        """Splits the module; what was made for it stays if it is as it was."""
        if self.splitter.split():
            self.program_cache.clear()
            self.passes.clear()
            self.custom = CustomSteps(self.holder.split, self.holder.optimizer)

    def _prepare_own(self, kind: str, batch: tuple, names: Any) -> None:
        """Builds what the model's own step may use, and traces it."""
        x, y, w = batch
        if self.holder.module.callable and self.objective.is_given and y is not None:
            seen = self.forward(x, kind)  # the step may use the compiled metrics
            outputs = names(seen.outputs) if names else None
            self.objective.build(seen.outputs, y, w, outputs, seen.ends)
        self._discover(kind, batch)

    def _discover(self, kind: str, batch: tuple) -> None:
        """Traces the model's own step once, abstractly: its errors come now."""
        assert self.custom is not None
        state = self.initial_state() if kind == "train" else self.holder.split.read()
        self.custom.discover(kind, jax.tree.map(spec_like, state), batch)

    def take_slots(self, slots: Iterable[SettingSlot]) -> None:
        """Makes arguments of the numbers in slots from the next ``prepare`` on.

        Those with which no step can be traced become constants again there.
        """
        if self.splitter.take_slots(slots):
            self._ready.clear()  # it is of programs that hold them as constants

    def _prove(self, kind: str, batch: tuple) -> None:
        """Traces a step abstractly, if a number is an argument for the first time."""
        if not self.splitter.unproven:
            return
        steps = self.programs.steps
        arrays = jax.tree.map(spec_like, self.holder.split.peek())
        if kind == "train":
            state = state_specs(self, "train")
            fresh = jax.eval_shape(self.holder.optimizer.init, arrays[0])
            state = state.replace(opt_state=jax.tree.map(spec_like, fresh))
            jax.eval_shape(lambda s, b: steps.step(s, b, None), state, batch)
        elif kind == "test":
            totals = jax.tree.map(spec_like, self.fresh_totals("test"))
            key = jax.random.key(0)
            jax.eval_shape(
                lambda a, t, b: steps.eval_step(a, t, b, None, key),
                arrays,
                totals,
                batch,
            )
        self.splitter.unproven = set()

    # ------------------------------------------------------------------ in a run
    def follow(self) -> None:
        """Goes on with the settings that hooks have changed, in a run.

        Those of layers, regularizers, losses and the optimizer, and whatever functions
        of the user's read.
        """
        before, state = self.holder.run_split, self.holder.state
        assert before is not None and state is not None
        current = before is self.holder.current_split
        if not current or self.splitter.has_new_constants():
            self.holder.end_run()
            self._resplit()
            self.holder.begin_run(self.initial_state().replace(metrics=state.metrics))
        elif self.holder.run_revision != self.holder.optimizer.revision:
            opt_state = self.holder.refit(state.opt_state, state.params)
            self.holder.begin_run(state.replace(opt_state=opt_state))

    def follow_freezing(self) -> bool:
        """Goes on with the layers that are to be trained from now on.

        Between two epochs of a run. Parameters that stay keep their slots.
        """
        if not self.splitter.has_other_parameters():
            return False
        self.holder.end_run()
        self._resplit()
        self.holder.begin_run(self.initial_state())
        return True

    def freeze_as(self, trained: set[str]) -> bool:
        """Trains the parameters that another run trained, where the module has them."""
        if not self.splitter.train_only(trained):
            return False
        self._resplit()
        return True

    def _resplit(self) -> None:
        """Makes the module ready for the same data with other layers to train."""
        self._settle(self._resplit_once)

    def _resplit_once(self) -> bool:
        self._split()
        for kind, batch in self.batch_specs.items():
            if overrides(self.holder.module, f"{kind}_step"):
                self._prepare_own(kind, batch, self._names)
                continue
            if kind == "train":
                self.forward(batch[0], kind)
            if self.owns(kind):
                self._discover(kind, batch)
        for kind, batch in self.batch_specs.items():
            self._prove(kind, batch)
        self.splitter.accept(self.objective.settings)
        return True

    # ------------------------------------------------------------------ costs
    def cost(self, x: Any) -> Cost:
        """Cost of a forward pass on each device; a guess beside a step of its own."""
        if overrides(self.holder.module, "train_step") or not getattr(
            self.holder.module, "callable", 1
        ):
            return Cost(flops=1e9, convolutions=1, elements=1e9, turned=1)
        if (cost := self.passes.cost(x)) is None:
            cost = self.forward(x).cost.times(1 / self.holder.placement.parts)
        return cost

    def own_cost(self, kind: str) -> Cost | None:
        """Cost of a step of the model's own, as it was traced; ``None`` without one."""
        own = own_steps(self.custom, kind)
        return None if own is None else own.costs.get(kind)

    def next_draw(self) -> int:
        """Where a ``predict`` begins to count its batches, for what layers draw.

        One that draws at inference does so anew each time; the others need not know.
        """
        number, self._predictions = self._predictions, self._predictions + 1
        return number % _CALLS * _DRAWS if self.holder.split.draws else 0

    def exact_rows(self, training: bool) -> bool:
        """Whether a short batch runs at its own size instead of padded."""
        own_loss = getattr(self.holder.module, "own_compute_loss", None) is not None
        kinds = ("train",) if training else ("test", "predict")
        custom = any(self.owns(kind) for kind in kinds)
        inexact = self.objective.exact_rows or bool(self.objective.own.names)
        mixes = self.passes.mixes_rows(kinds[0])
        return inexact or mixes or own_loss or custom

    # ------------------------------------------------------------------ checks
    @property
    def minimizes(self) -> bool:
        """Whether there is anything to train on: a loss, or what layers add to it."""
        custom = overrides(self.holder.module, "train_step")
        own = self.objective.terms or equation_of(self.objective.losses) is not None
        if own or custom or self.passes.latest is None:
            return True
        own_loss = getattr(self.holder.module, "own_compute_loss", None) is not None
        adds = self.passes.latest.losses > 0 or self.holder.split.has_regularizers
        return own_loss or adds

    # ------------------------------------------------------------------ programs
    @property
    def programs(self) -> Programs:
        """The programs of the module and the optimizer as they are now."""
        return self.program_cache.find(self.objective, self.custom)

    def make_programs(self, placement: OneDevice, lanes: Any = None) -> Programs:
        """Programs for arrays that lie so, which are not kept."""
        made_of = self.objective, self.custom, placement
        return self.program_cache.make(*made_of, lanes=lanes)

    def initial_state(self, beside: Any = ()) -> TrainState:
        """The state that the next run starts from: the module's own arrays.

        Args:
            beside: Data that its programs are called with.
        """
        holder = self.holder
        params, frozen, others = holder.split.read()
        holder.follow_parameters()
        if holder.opt_state is None:
            with starting():
                init = holder.optimizer.init
                holder.opt_state = holder.placement.init(init, params)
        elif holder.run_revision != holder.optimizer.revision:  # momentum, say
            holder.opt_state = holder.refit(holder.opt_state, params)
        arrays = params, frozen, others, holder.opt_state, self.fresh_totals("train")
        state = TrainState(*arrays, *holder.take_place())
        return holder.placement.state(state, beside)

    # ------------------------------------------------------------------ logs
    def owns(self, kind: str) -> bool:
        """Whether what the module brings itself runs as its step."""
        return own_steps(self.custom, kind) is not None

    def fresh_totals(self, kind: str) -> Any:
        """Totals of losses and metrics before the first batch; none consumes them."""
        if own := own_steps(self.custom, kind):
            return jax.device_put(own.fresh(kind))
        return self.objective.fresh()

    def totals(self, kind: str) -> Any:
        """Totals before the first batch on the host, for their shapes."""
        if own := own_steps(self.custom, kind):
            return own.fresh(kind)
        return self.objective.init()

    @property
    def names(self) -> list[str]:
        """Names of the logs of ``fit``."""
        if own := own_steps(self.custom, "train"):
            return own.names("train")
        return self.objective.names

    @property
    def last_logs(self) -> dict[str, Any] | None:
        """Logs of the last step, for which this waits."""
        return None if self.readings is None else self.read_logs(self.readings)

    def read_logs(self, readings: Readings) -> dict[str, Any]:
        """Python floats in the order of the logs; other values are NumPy arrays."""
        self.readings = readings
        host = readings.read()
        order = [n for n in (*self.names, *self.objective.names) if n in host]
        return {name: host[name] for name in dict.fromkeys([*order, *host])}


def _check_own(module: Any, own: Any, rows: str) -> None:
    """Raises if code of the model's would see filled-up positions without masks."""
    name = type(module).__name__
    loss = getattr(module, "own_compute_loss", None)
    if own or loss is not None:
        what = "step" if own else "compute_loss"
        raise ShapeError(
            name,
            f"a model with a {what} of its own cannot take {rows}",
            hint="Fill them up, with a mask of your own: "
            "exburn.utils.pad_sequences(rows, padding='post').",
        )
