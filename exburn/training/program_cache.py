"""The programs of a module in training, made once for each of its variants."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import jax

from exburn.errors import ArgumentError
from exburn.runtime.xla_options import compiler_options, convolutional
from exburn.training.block_stacks import find_stacks
from exburn.training.compile_log import CompileLog
from exburn.training.custom_step import CustomSteps, own_steps
from exburn.training.feed.plan import choose_unroll
from exburn.training.fingerprint import Fingerprint
from exburn.training.forward_cache import ForwardCache
from exburn.training.objective.objective import Objective
from exburn.training.placement import OneDevice, OnMesh
from exburn.training.privacy.clipping import Mechanism
from exburn.training.privacy.row_gradients import private_gradient
from exburn.training.program import Programs
from exburn.training.settings import Settings
from exburn.training.splitting import Splitter
from exburn.training.state_holder import StateHolder
from exburn.training.steps import Steps

_VARIANTS = 4  # sets of programs that are kept, for options that change to and fro


class ProgramCache:
    """The programs of a split module, by optimizer, options and layout.

    Attributes:
        trace_counts: How often each program was traced, and so compiled.
        compilations: What was compiled, when, and why.
        private: Whether gradients are private: programs train with a mechanism alone.
        mechanism: That of the ``fit`` under way.
        norms: How the norm of each weight's private gradient is computed, by its name.
        variant: Names the options of ``fit`` in force; programs are kept for each.
    """

    def __init__(
        self,
        holder: StateHolder,
        splitter: Splitter,
        passes: ForwardCache,
        *,
        unroll: int | str,
        eager: bool,
        remat: str | None = None,
        private: bool = False,
    ):
        self._holder, self._splitter, self._passes = holder, splitter, passes
        self.asked_unroll, self.eager, self.remat = unroll, eager, remat
        self.private = private
        self.mechanism: Mechanism | None = None
        self.norms: dict[str, str] = {}
        self.trace_counts: Counter[str] = Counter()
        self.compilations = CompileLog(holder.tell_compiled)
        self.variant: Any = None
        self._programs: dict[Any, Programs] = {}

    def clear(self) -> None:
        """Drops all programs: what they were made of is another one."""
        self._programs = {}

    def find(self, objective: Objective, custom: CustomSteps | None) -> Programs:
        """The programs of the module and the optimizer as they are now."""
        placement = self._holder.placement
        own = self.variant, self.mechanism
        options = own, self.eager, placement.distribution
        key = options, getattr(self._holder.optimizer, "revision", 0)
        if key not in self._programs:
            others = reversed(self._programs.items())
            alike = next((p for (variant, _), p in others if variant == key[0]), None)
            while len(self._programs) >= _VARIANTS:
                del self._programs[next(iter(self._programs))]
            self._programs[key] = self.make(objective, custom, placement, alike)
        return self._programs[key]

    def make(
        self,
        objective: Objective,
        custom: CustomSteps | None,
        placement: OneDevice,
        like: Programs | None = None,
        lanes: Any = None,
    ) -> Programs:
        """Programs for arrays that lie so, which are not kept.

        Args:
            like: Programs that differ in the optimizer alone.
        """
        if self.private and lanes is not None:
            raise ArgumentError(
                "sweep",
                "a model that is compiled with privacy= cannot be trained in lanes: "
                "each of them would have an epsilon of its own",
                hint="Call fit for each of the models, with a seed of its own.",
            )
        holder, splitter, passes = self._holder, self._splitter, self._passes
        joins_lookups = passes.joins_lookups(placement.parts)
        stacks = None
        own = own_steps(custom, "train") or self.eager or lanes
        own = own or self.remat is not None or self.private
        if not (own or joins_lookups or isinstance(placement, OnMesh)):
            stacks = find_stacks(passes.blocks, holder.split, holder.optimizer)
        steps = Steps(
            holder.split,
            objective,
            holder.optimizer,
            self.trace_counts,
            custom=custom,
            unroll=self.unroll,
            pointwise=convolutional(passes.first_cost()) or None,
            joins_lookups=joins_lookups,
            placement=placement,
            eager=self.eager,
            compiling=holder.tell_compilation,
            lanes=lanes,
            stacks=stacks,
            remat=self.remat,
            private=self._private_gradient(placement.parts),
        )
        settings = Settings.of(
            holder.module,
            splitter.trained,
            holder.optimizer,
            objective,
            Fingerprint(holder.module, objective.settings).plain(),
            [number.slot.name for number in splitter.numbers.values()],
        )
        return Programs(
            steps,
            settings=settings,
            log=self.compilations,
            options=self.compiler_options,
            like=like,
        )

    def _private_gradient(self, parts: int) -> Any:
        if not self.private:
            return None
        own = self.mechanism, self._note_norms, parts
        return functools.partial(private_gradient, *own)

    def _note_norms(self, norms: dict[str, str]) -> None:
        self.norms = norms

    def unroll(self, training: bool) -> int:
        """Steps compiled into one turn of the loop of training, or of the others."""
        if self.asked_unroll != "auto":
            return int(self.asked_unroll)
        if (cost := self._passes.first_cost()) is None:
            return 1
        return choose_unroll(cost, jax.default_backend(), training)

    def compiler_options(self, training: bool = True) -> dict[str, Any] | None:
        """What XLA is told of the programs that train, or of the others."""
        platform, devices = jax.default_backend(), self._holder.placement.devices
        cost, gradients = self._passes.first_cost(), 0
        if devices > 1:
            gradients = sum(w.nbytes for w in self._holder.trained_weights().values())
        return compiler_options(cost, platform, training, devices, gradients)
