"""Makes a module ready for data: built, split, checked and traced, not yet compiled."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax

from exburn.core.substitution import substituting
from exburn.data import check_finite
from exburn.errors import ArgumentError, ExBurnError
from exburn.module.building import build_for, materialize, spec_like
from exburn.module.layer import Layer
from exburn.module.reached import Discovery
from exburn.module.selection import frozen_paths, train_only
from exburn.module.traversal import iter_modules, iter_weights
from exburn.runtime.cost_model import Cost
from exburn.runtime.gc_pause import starting
from exburn.runtime.xla_options import compiler_options, convolutional
from exburn.training.check import check_ids
from exburn.training.compile_log import CompileLog
from exburn.training.custom_step import CustomSteps, own_steps
from exburn.training.feed.chunk import Chunk
from exburn.training.feed.plan import choose_unroll
from exburn.training.fingerprint import Change, Fingerprint, Slot
from exburn.training.forward import Forward
from exburn.training.forward_cache import ForwardCache
from exburn.training.memory import state_specs
from exburn.training.module import SplitModule
from exburn.training.numbers import Number, name_of
from exburn.training.objective.objective import Objective
from exburn.training.objective.readings import Readings
from exburn.training.objective.stateful_metrics import OwnMetrics
from exburn.training.overrides import overrides
from exburn.training.placement import OneDevice
from exburn.training.prepared_cache import Ready, form_of
from exburn.training.program import Programs
from exburn.training.settings import Settings
from exburn.training.state import TrainState
from exburn.training.state_holder import StateHolder
from exburn.training.steps import Steps

_VARIANTS = 4  # sets of programs that are kept, for options that change to and fro
_CALLS, _DRAWS = 1 << 16, 1 << 14  # predictions, and batches, of numbers of their own
_FORMS = 512  # of batches that all stays prepared for: lengths of sequences, maybe


class _TryAgain(Exception):
    """What is prepared has changed meanwhile, and is prepared once more."""


class Preparer:
    """A module with its losses, and the programs made of them.

    Args:
        holder: The module's arrays, wherever they are.
        objective: Losses and metrics, or ``None`` if the module only predicts.
        steps_per_execution: Steps of a chunk, or ``"auto"``.
        unroll: Steps compiled into one turn of a chunk's loop, or ``"auto"``.
        join_batches: Batches that evaluation and prediction run as one, or ``"auto"``.
        eager: Runs operation by operation, for debugging.

    Attributes:
        custom: The module's own steps.
        readings: What there is of logs, of the last step.
        chunk: What was trained on last, while hooks of batches run.
        trace_counts: How often each program was traced, and so compiled.
        compilations: What was compiled, when, and why.
        variant: Names the options of ``fit`` in force; programs are kept for each.
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
    ):
        self.holder, self.objective = holder, objective or Objective()
        self.custom: CustomSteps | None = None
        self.readings: Readings | None = None
        self.chunk: Chunk | None = None
        self.steps_per_execution, self.eager = steps_per_execution, eager
        self.asked_unroll, self.join_batches = unroll, join_batches
        self.trace_counts: Counter[str] = Counter()
        self.compilations = CompileLog(self.holder.tell_compiled)
        self.variant: Any = None
        self.batch_specs: dict[str, tuple] = {}
        self._predictions = 0
        self._programs: dict[Any, Programs] = {}
        self.passes = ForwardCache(holder)
        self._ready: dict[tuple[str, Any], Ready] = {}
        self._names: Any = None  # function of the outputs, for a step of its own
        self._built_for: Any = None  # what the objective is
        self._unmatched: Any = None  # the last that knows no targets
        self._fingerprint: Fingerprint | None = None  # of what it was prepared as
        self._numbers: dict[str, Number] = {}  # arguments of the programs
        self._unproven: set[str] = set()  # those that no step was traced with
        self._constants: set[tuple] = set()  # places of numbers that cannot be
        self._run_revision = 0  # of the optimizer, in a run
        self._trained: Any = None
        self._modules: list[Any] = []
        self._weights: list[Any] = []
        self._switched: list[Any] = []
        self._beside: dict[str, Any] = {}  # weights of others that losses read

    def aim(self, objective: Objective) -> None:
        """Trains for other losses and metrics from now on; the optimizer goes on."""
        self.objective, self._programs, self._beside = objective, {}, {}

    def forget(self) -> None:
        """Drops programs and optimizer state: the module has other weights now."""
        self.holder.current_split = self.holder.opt_state = None
        self._programs = {}
        self.passes.clear()

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
            batch: ``(x, y, sample_weight)`` of specs or arrays.
            names: Function of the outputs' specs: their names in logs.
            kind: ``"train"``, ``"test"`` or ``"predict"``.
            op: The operation named in errors.
            check_first: Called where the module is not ready for such a batch yet.

        Returns:
            Specs of the outputs; ``None`` if the model's own step takes the batch.

        Raises:
            ArgumentError: There is nothing to minimize.
        """
        if self.is_ready(kind, batch):
            outputs = self.recall(kind, batch)
        else:
            check_first()
            with starting():
                outputs = self._prepare_anew(batch, names, kind)
        if kind == "train" and not self.minimizes:
            raise ArgumentError(
                op,
                "there is nothing to minimize: compile() received no loss",
                hint='model.compile(optimizer, loss="cross_entropy")',
            )
        return outputs

    def _prepare_anew(self, batch: tuple, names: Any, kind: str) -> Any:
        while True:
            with contextlib.suppress(_TryAgain), self._proving():
                return self._prepare_once(batch, names, kind)

    def _prepare_once(self, batch: tuple, names: Any, kind: str) -> Any:
        x, y, w = specs = jax.tree.map(spec_like, batch)
        self.batch_specs.pop(kind, None)
        own = overrides(self.holder.module, f"{kind}_step")
        self._build(x, own)
        if self.holder.scale_loss():
            self._programs = {}
        self._split_anew()
        with self.holder.split.recording() as read:
            if own:
                self._names = names
                self._prepare_own(kind, specs, names)
                self._built_for, seen = None, None
            else:
                seen = self.forward(x, kind)
                if kind != "predict":
                    self._build_objective(kind, seen, y, w, names)
                if self.owns(kind):
                    self._discover(kind, specs)
        if read:
            self._beside |= read
            raise _TryAgain
        if kind == "train" and self.holder.optimizer is not None:
            self.holder.optimizer.check_paths(
                [path for path, _, _ in iter_weights(self.holder.module)]
            )
        if kind == "train":
            self.holder.follow_parameters()
        self._prove(kind, specs)
        self.batch_specs[kind] = specs
        self._keep_ready(kind, batch, seen)
        return None if seen is None else seen.outputs

    def _build_objective(
        self, kind: str, seen: Forward, y: Any, w: Any, names: Any
    ) -> None:
        """Fits losses and metrics to the outputs, unless that is done."""
        # A compute_loss of the model's own builds it, too, for all of a batch.
        own_loss = getattr(self.holder.module, "own_compute_loss", None) is not None
        form = form_of((seen.outputs, y, w), rows=own_loss)
        wanted = self.objective, self.holder.split, form, seen.ends
        if wanted == self._built_for:
            return
        for ready in self._ready.values():  # of another number of rows, maybe
            if ready.built_for == wanted and self.objective.may_recall(ready.built):
                self.objective.recall(ready.built)
                self._built_for = wanted
                return
        self._built_for = None  # until this succeeds
        named = names(seen.outputs) if names else None
        op = "fit" if kind == "train" else "evaluate"
        with substituting(self.holder.split.reading()):
            try:
                self.objective.build(seen.outputs, y, w, named, seen.ends, op)
            except ExBurnError:  # it may pass on targets of another form
                if not own_loss or self.objective.has_metrics:
                    raise
                nothing = seen.outputs, None, None, named, seen.ends
                self.objective.build(*nothing, op)
                self._unmatched = wanted
        given = [meter.metric for meter in self.objective.meters]
        self.objective.own = OwnMetrics(self.holder.module, given)
        self.objective.logged = getattr(self.holder.module, "logged_names", None)
        self._built_for = wanted

    # ------------------------------------------------------------------ numbers
    def _take_numbers(self, changes: list[Change]) -> None:
        """Makes arguments of the numbers that have changed, if they can be."""
        self.take_slots([change.slot for change in changes if change.is_number])

    def take_slots(self, slots: Iterable[Slot]) -> None:
        """Makes arguments of the numbers in slots from the next ``prepare`` on.

        Those with which no step can be traced become constants again there.
        """
        known = self._constants | {n.slot.place for n in self._numbers.values()}
        for slot in slots:
            if slot.place in known:
                continue
            name, further = name_of(slot), 1
            while name in self._numbers:
                name, further = f"{name_of(slot)} ({further})", further + 1
            self._numbers[name] = Number(slot)
            self._unproven.add(name)
            self._ready = {}  # of programs that hold it as a constant

    @contextlib.contextmanager
    def _proving(self) -> Iterator[None]:
        """In the block, new arguments that make a trace fail become constants again."""
        try:
            yield
        except Exception as error:
            if isinstance(error, _TryAgain) or not self._unproven:
                raise
            for name in self._unproven:
                self._constants.add(self._numbers.pop(name).slot.place)
            self._unproven = set()
            raise _TryAgain from None

    def _prove(self, kind: str, batch: tuple) -> None:
        """Traces a step abstractly, if a number is an argument for the first time."""
        if not self._unproven:
            return
        arrays = jax.tree.map(spec_like, self.holder.split.peek())
        if kind == "train":
            state = state_specs(self, "train")
            fresh = jax.eval_shape(self.holder.optimizer.init, arrays[0])
            state = state.replace(opt_state=jax.tree.map(spec_like, fresh))
            jax.eval_shape(
                lambda s, b: self.programs.steps.step(s, b, None), state, batch
            )
        elif kind == "test":
            totals = jax.tree.map(spec_like, self.fresh_totals("test"))
            step = self.programs.steps.eval_step
            key = jax.random.key(0)
            jax.eval_shape(
                lambda a, t, b: step(a, t, b, None, key), arrays, totals, batch
            )
        self._unproven = set()

    def _keep_ready(self, kind: str, batch: tuple, seen: Forward | None) -> None:
        """Keeps what was prepared, for other batches of the same form."""
        self._fingerprint = Fingerprint(self.holder.module, self.objective.settings)
        assert self.custom is not None and self._fingerprint is not None
        self._ready.pop(key := (kind, form_of(batch)), None)
        while len(self._ready) >= _FORMS:
            del self._ready[next(iter(self._ready))]
        self._ready[key] = Ready(
            self.batch_specs[kind],
            seen,
            self._fingerprint,
            self.holder.split,
            self.objective,
            self._built_for,
            self.objective.built_parts(),
            self.custom.names(kind),
        )

    def is_ready(self, kind: str, batch: tuple) -> bool:
        """Whether all is prepared for such a batch: one of the last was like it."""
        ready = self._ready.get((kind, form_of(batch)))
        return (
            ready is not None
            and ready.split is self.holder.current_split
            and ready.objective is self.objective
            and (kind == "predict" or self.objective.may_recall(ready.built))
            and ready.fingerprint.holds(self.holder.module)
        )

    def recall(self, kind: str, batch: tuple) -> Any:
        """Specs of the outputs, where ``is_ready`` said that all is prepared."""
        ready = self._ready[kind, form_of(batch)]
        self.batch_specs[kind] = ready.specs
        if kind != "predict":
            self.objective.recall(ready.built)
            self._built_for = ready.built_for
        assert self.custom is not None
        self.custom.recall(kind, ready.logs)
        if ready.seen is None:
            return None
        self.passes.latest = ready.seen
        return ready.seen.outputs

    def _build(self, x: Any, own: bool) -> None:
        """Gives the module its weights, for any number of rows."""
        module = self.holder.module
        if not isinstance(module, Layer):
            return
        if not self.holder.module.built and own and not self.holder.module.callable:
            self.holder.module.built = (
                True  # its parts are called by its own step alone
            )
        elif not self.holder.module.built:
            build_for(self.holder.module, x)
        materialize(self.holder.module, self.holder.seed)

    def _split_anew(self) -> None:
        """Splits the module; what was made for it stays if it is as it was."""
        changes = [] if self._fingerprint is None else self._fingerprint.changes()
        self._take_numbers(changes)
        arguments = {number.slot.place for number in self._numbers.values()}
        built_in = any(change.slot.place not in arguments for change in changes)
        old = self.holder.current_split
        split = SplitModule(self.holder.module, self._beside, self._numbers)
        self._modules = [module for _, module in iter_modules(self.holder.module)]
        self._weights = [weight for _, weight, _ in iter_weights(self.holder.module)]
        if (
            old is not None
            and not built_in
            and old.numbers.keys() == split.numbers.keys()
            and old.params == split.params
            and old.frozen == split.frozen
            and old.graphdef == split.graphdef
            and old.holds_those_of(split)
        ):
            return
        self.holder.current_split, self._programs = split, {}
        self.passes.clear()
        self._trained = _trained_names(self.holder.module)
        self._switched = self._switches()
        self.custom = CustomSteps(split, self.holder.optimizer)

    def _switches(self) -> list[Any]:
        """What says of each layer and weight whether it is to be trained."""
        layers = [getattr(module, "_trainable", True) for module in self._modules]
        frozen = [weight.get_metadata().get("frozen") for weight in self._weights]
        return layers + frozen

    def begin_run(self, state: TrainState) -> None:
        """Trains from a state on, which was made for all as it is now."""
        self.holder.state, self.holder.run_split = state, self.holder.current_split
        self._run_revision = self.holder.optimizer.revision

    def follow(self) -> None:
        """Goes on with the settings that hooks have changed, in a run.

        Those of layers, regularizers, losses and the optimizer, and whatever functions
        of the user's read.
        """
        before, state = self.holder.run_split, self.holder.state
        assert before is not None and state is not None
        if before is not self.holder.current_split or self._has_new_constants():
            self.holder.end_run()
            self._resplit()
            self.begin_run(self.initial_state().replace(metrics=state.metrics))
        elif self._run_revision != self.holder.optimizer.revision:
            fitted = self.holder.refit(state.opt_state, state.params)
            self.begin_run(state.replace(opt_state=fitted))

    def _has_new_constants(self) -> bool:
        """Whether settings have changed that are no arguments of the programs."""
        fingerprint = self._fingerprint
        assert fingerprint is not None
        if fingerprint.holds(self.holder.module):
            return False
        changes = fingerprint.changes()
        arguments = {number.slot.place for number in self._numbers.values()}
        if any(change.slot.place not in arguments for change in changes):
            return True
        fingerprint.accept(changes)
        return False

    def follow_freezing(self) -> bool:
        """Goes on with the layers that are to be trained from now on.

        Between two epochs of a run. Parameters that stay keep their slots.

        Returns:
            Whether these are others than before, so that there are other programs.
        """
        switches = self._switches()
        if switches == self._switched:  # the names below take a while to gather
            return False
        self._switched = switches
        if _trained_names(self.holder.module) == self._trained:
            return False
        self.holder.end_run()
        self._resplit()
        self.begin_run(self.initial_state())
        return True

    def freeze_as(self, trained: set[str]) -> bool:
        """Trains the parameters that another run trained, where the module has them.

        Returns:
            Whether these are others than before.
        """
        if set(self.holder.split.params) == trained or not isinstance(
            self.holder.module, Layer
        ):
            return False
        if not train_only(self.holder.module, trained):
            return False
        self._resplit()
        return True

    def _resplit(self) -> None:
        """Makes the module ready for the same data with other layers to train."""
        while True:
            with contextlib.suppress(_TryAgain), self._proving():
                self._resplit_once()
                return

    def _resplit_once(self) -> None:
        self._split_anew()
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
        self._fingerprint = Fingerprint(self.holder.module, self.objective.settings)

    def _prepare_own(self, kind: str, batch: tuple, names: Any) -> None:
        """Builds what the model's own step may use, and traces it."""
        if (
            self.holder.module.callable
            and self.objective.is_given
            and batch[1] is not None
        ):
            seen = self.forward(batch[0], kind)  # the step may use the compiled metrics
            _, y, w = batch
            named = names(seen.outputs) if names else None
            self.objective.build(seen.outputs, y, w, named, seen.ends)
        self._discover(kind, batch)

    def _discover(self, kind: str, batch: tuple) -> None:
        """Traces the model's own step once, abstractly: its errors come now."""
        assert self.custom is not None
        state = self.initial_state() if kind == "train" else self.holder.split.read()
        self.custom.discover(kind, jax.tree.map(spec_like, state), batch)

    def forward(self, x: Any, kind: str | None = None) -> Forward:
        """What one abstract forward pass tells; traced once for each shape.

        Args:
            x: Specs of the inputs.
            kind: The programs that are asked for short batches, if any are.
        """
        while (forward := self.passes.find(x, kind)) is None:
            self._hold(self.passes.trace(x, kind), x)  # the module is another one then
        self.passes.latest = forward
        return forward

    def _hold(self, found: list[Discovery], x: Any) -> None:
        """Has the module hold what a pass was found to reach."""
        if not any(discovery.met or discovery.noted for discovery in found):
            return
        if any([discovery.settle() for discovery in found]):
            build_for(self.holder.module, x, training=True)
            materialize(self.holder.module, self.holder.seed)
        self._split_anew()

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

    def step_cost(self, kind: str, x: Any) -> Cost:
        """What chunks of steps are planned by: the cost of a forward pass.

        Of the model's own step that trains it is a third of the step's.
        """
        if (cost := self.own_cost(kind)) is None:
            return self.cost(x)
        share = 3 if kind == "train" else 1
        equations = cost.equations // share
        cost = cost.times(1 / share / self.holder.placement.parts)
        return dataclasses.replace(cost, equations=equations)

    def next_draw(self) -> int:
        """Where a ``predict`` begins to count its batches, for what layers draw.

        One that draws at inference does so anew each time; the others need not know.
        """
        number, self._predictions = self._predictions, self._predictions + 1
        return number % _CALLS * _DRAWS if self.holder.split.draws else 0

    def unroll(self, training: bool) -> int:
        """Steps compiled into one turn of the loop of training, or of the others."""
        if self.asked_unroll != "auto":
            return int(self.asked_unroll)
        cost = self.passes.first_cost()
        return (
            1 if cost is None else choose_unroll(cost, jax.default_backend(), training)
        )

    def compiler_options(self, training: bool = True) -> dict[str, Any] | None:
        """What XLA is told of the programs that train, or of the others."""
        platform, devices = jax.default_backend(), self.holder.placement.devices
        return compiler_options(self.passes.first_cost(), platform, training, devices)

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
        if self.objective.terms or custom or self.passes.latest is None:
            return True
        own_loss = getattr(self.holder.module, "own_compute_loss", None) is not None
        return (
            own_loss
            or self.passes.latest.losses > 0
            or self.holder.split.has_regularizers
        )

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
        if pred_spec is None or self.passes.latest is None:
            return
        check_ids(batch[0], self.passes.latest.lookups, op)
        if targets and self._built_for != self._unmatched:
            self.objective.check_targets(batch[1], pred_spec)

    # ------------------------------------------------------------------ programs
    @property
    def programs(self) -> Programs:
        """The programs of the module and the optimizer as they are now."""
        placement = self.holder.placement
        options = self.variant, self.eager, placement.distribution
        key = options, getattr(self.holder.optimizer, "revision", 0)
        if key not in self._programs:
            others = reversed(self._programs.items())
            alike = next((p for (variant, _), p in others if variant == key[0]), None)
            while len(self._programs) >= _VARIANTS:
                del self._programs[next(iter(self._programs))]
            self._programs[key] = self.make_programs(placement, alike)
        return self._programs[key]

    def make_programs(
        self, placement: OneDevice, like: Programs | None = None, lanes: Any = None
    ) -> Programs:
        """Programs for arrays that lie so, which are not kept.

        Args:
            placement: Where arrays lie.
            like: Programs that differ in the optimizer alone.
            lanes: Of ``Steps``.
        """
        steps = Steps(
            self.holder.split,
            self.objective,
            self.holder.optimizer,
            self.trace_counts,
            custom=self.custom,
            unroll=self.unroll,
            pointwise=convolutional(self.passes.first_cost()) or None,
            joins_lookups=self.passes.joins_lookups(placement.parts),
            placement=placement,
            eager=self.eager,
            compiling=self.holder.tell_compilation,
            lanes=lanes,
        )
        return Programs(
            steps,
            settings=Settings.of(
                self.holder.module,
                self._trained,
                self.holder.optimizer,
                self.objective,
                self._others(),
                [number.slot.name for number in self._numbers.values()],
            ),
            log=self.compilations,
            options=self.compiler_options,
            like=like,
        )

    def _others(self) -> dict[str, Any]:
        return Fingerprint(self.holder.module, self.objective.settings).plain()

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
        elif self._run_revision != holder.optimizer.revision:  # momentum from 0 on, say
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


def _trained_names(module: Any) -> tuple[list[str], list[str]]:
    """Names of the trained parameters, and paths of the frozen layers."""
    names = [path for path, _, learns in iter_weights(module) if learns]
    return names, frozen_paths(module) if isinstance(module, Layer) else []
