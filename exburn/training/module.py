"""A module as pure arrays: split once, bound again inside every program."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from exburn.compression.masking import WeightMasking
from exburn.constraints import apply_constraints, constraints_of
from exburn.core import forward_context, random_keys
from exburn.core.forward_context import Interceptor
from exburn.core.substitution import Substitution, current, stand_in, substituting
from exburn.data import has_packed, has_padded
from exburn.errors import ShapeError
from exburn.module.building import materialize, spec_like, untouched_metrics
from exburn.module.copying import paths_of, standing_for
from exburn.module.deferred_placement import arrive
from exburn.module.layer import Layer
from exburn.module.reached import Discovery, fill, made_in, refuse
from exburn.module.traversal import iter_weights
from exburn.module.variable import Buffer, Weight
from exburn.runtime.donation import own_variables
from exburn.runtime.kernels.conv.dispatch import pointwise_products
from exburn.training.numbers import Number, as_arguments, give, holding
from exburn.training.packed_rows import enter
from exburn.training.row_axes import RowTracker, Survey, survey_specs

Arrays = dict[str, Any]


class SplitModule:
    """The graph definition of a module, and where each of its arrays belongs.

    Attributes:
        params, frozen, others: Names of the trained parameters, of the parameters that
            are frozen, and of everything else (running statistics, counters).
        constants: Arrays that are plain attributes; programs hold their values.
        draws: Whether a pass at inference was seen to draw random numbers.
        masking: The masks of pruned weights.

    Args:
        beside: Weights of others that its losses and metrics read, by names that none
            of its own has: frozen ones.
        numbers: Those that are arguments of the programs, by name: among the others.
    """

    def __init__(
        self,
        module: Any,
        beside: Mapping[str, Weight] | None = None,
        numbers: Mapping[str, Number] | None = None,
    ):
        if isinstance(module, Layer) and module.built:
            materialize(module)
        self.module, self.draws = module, False
        self._surveys: dict[Any, Survey] = {}
        self.numbers = dict(numbers or {})
        with as_arguments(self.numbers):
            self.graphdef, state = nnx.split(module)
        flat = nnx.to_flat_state(state)
        self._treedef = jax.tree.structure(state)
        weights = {id(w): (path, learns) for path, w, learns in iter_weights(module)}
        self.variables: dict[str, Any] = dict(self.numbers)
        self.params: list[str] = []
        self.frozen: list[str] = []
        self.others: list[str] = list(self.numbers)
        self.constants: Arrays = {}
        self._order: list[str] = []
        self._paths = [path for path, _ in flat]
        for path, _ in flat:
            variable = _resolve(module, path)
            name, learns = weights.get(id(variable), ("/".join(map(str, path)), False))
            self._order.append(name)
            if not isinstance(variable, nnx.Variable):
                self.constants[name] = variable
                continue
            self.variables[name] = variable
            if not isinstance(variable, nnx.Param):
                self.others.append(name)
            else:
                (self.params if learns else self.frozen).append(name)
        for name, weight in (beside or {}).items():
            self.variables[name] = weight
            self.frozen.append(name)
        self._recorded: dict[str, Weight] | None = None
        self._names = {id(v): name for name, v in self.variables.items()}
        self.masking = WeightMasking.of(module, self._names, self.params, self.frozen)
        rank = {path: i for i, (path, _, _) in enumerate(iter_weights(module))}
        for names in (self.params, self.frozen, self.others):
            names.sort(key=lambda n: rank.get(n, len(rank)))

    def read(self) -> tuple[Arrays, Arrays, Arrays]:
        """The module's own arrays: trained, frozen, others."""
        arrive()
        return self.peek()

    def peek(self) -> tuple[Arrays, Arrays, Arrays]:
        """Arrays for their shapes: some may wait for a GPU that is being started."""
        return tuple(  # type: ignore[return-value]
            {name: _raw(self.variables[name]) for name in names}
            for names in (self.params, self.frozen, self.others)
        )

    def write(self, *groups: Arrays) -> None:
        """Puts arrays back into the module."""
        for group in groups:
            for name, value in group.items():
                variable = self.variables[name]
                if variable.get_raw_value() is not value:  # ten times as quick
                    variable.set_raw_value(value, _unsafe_bypass_check=True)

    def replaced_arrays(self, *groups: Arrays) -> tuple[Arrays, ...] | None:
        """The module's arrays, if someone replaced any of the given ones in it."""
        same = all(
            self.variables[name].get_raw_value() is value
            for group in groups
            for name, value in group.items()
        )
        return None if same else self.read()

    def own(self, *groups: Arrays) -> None:
        """Makes arrays the module's own that others hold, too: in it and in groups."""
        for group in groups:
            own_variables(self.variables, group)

    def bind(self, *groups: Arrays) -> nnx.Module:
        """A copy of the module that holds the given arrays."""
        arrays: Arrays = dict(self.constants)
        for group in groups:
            arrays |= group
        leaves = [arrays[name] for name in self._order]
        return nnx.merge(self.graphdef, jax.tree.unflatten(self._treedef, leaves))

    def forward(
        self,
        groups,
        inputs,
        *,
        training: bool,
        key=None,
        row_mask=None,
        interceptors: tuple[Interceptor, ...] = (),
        prepare=None,
        discoveries: list[Discovery] | None = None,
        tables=None,
    ) -> tuple[Any, Arrays, forward_context.Context]:
        """Outputs, what ``others_of`` tells afterwards, and the context of the pass.

        Args:
            prepare: May change settings of the copy of the module that is run.
            discoveries: Receives what the pass reaches by other ways than attributes;
                otherwise what the module does not hold is an error.
        """
        running = self.running(
            groups,
            training=training,
            key=key,
            row_mask=row_mask,
            interceptors=interceptors,
            prepare=prepare,
            discoveries=discoveries,
            tables=tables,
        )
        with running as (call, ctx):
            outputs = self.call_on(inputs, call, groups, ctx)((inputs,), {})
        return outputs, self.others_of(ctx.root, *groups), ctx

    def call_on(
        self, x: Any, call: Callable, groups: Any, ctx: forward_context.Context
    ) -> Callable:
        """The function of a pass that is under way, as inputs of some form need it."""
        if not has_padded(x):
            if not has_packed(x):
                return call
            return lambda args, kwargs: call((enter(args[0], ctx), *args[1:]), kwargs)
        tracker = RowTracker(x, self.survey(groups, x, ctx.training))
        return functools.partial(tracker.run, call, ctx)

    def survey(self, groups: Any, x: Any, training: bool) -> Survey:
        """Which arrays of a pass on filled-up rows have an axis of time."""
        key = jax.tree.structure(x), training
        if key in self._surveys:
            return self._surveys[key]
        specs = jax.tree.map(spec_like, (groups, x))
        sizes = {n for leaf in jax.tree.leaves(specs[0]) for n in leaf.shape}
        try:
            survey = self._survey(specs[0], survey_specs(x, sizes), training, sizes)
        except ShapeError:  # an input, or a layer, may take rows of one length only
            survey = self._survey(specs[0], specs[1], training, None)
        self._surveys[key] = survey
        return survey

    def _survey(
        self, groups: Any, x: Any, training: bool, sizes: set[int] | None
    ) -> Survey:
        surveys: list[Survey] = []

        def run(groups: Any, x: Any) -> Any:
            options = {"key": jax.random.key(0), "discoveries": []}
            tracker = RowTracker(x, None, sizes)
            with self.running(groups, training=training, **options) as (call, ctx):
                outputs = tracker.run(call, ctx, (x,), {})
            surveys.append(tracker.survey)
            return outputs

        with untouched_metrics(self.module), pointwise_products(False):
            jax.eval_shape(run, groups, x)
        return surveys[0]

    @contextlib.contextmanager
    def running(
        self,
        groups,
        *,
        training: bool,
        key=None,
        row_mask=None,
        interceptors: tuple[Interceptor, ...] = (),
        prepare=None,
        discoveries: list[Discovery] | None = None,
        tables=None,
    ) -> Iterator[tuple[Callable, forward_context.Context]]:
        """In the block the pass of ``forward`` is under way.

        Yields:
            A function of the arguments, ``(args, kwargs)``, and the context, whose
            ``root`` is the copy of the module that is run. For rows of unlike lengths
            ``call_on`` makes another one of it.
        """
        copy = self.bind(*groups)
        if prepare is not None:
            prepare(copy)
        ctx = forward_context.Context(training=training, key=key, row_mask=row_mask)
        if discoveries is None:
            meet = functools.partial(self._read, ctx, groups)
            ctx.scope = standing_for(self.module, copy, meet=meet)
            ctx.paths = paths_of(self.module, ctx.scope)
        else:
            discoveries.append(discovery := Discovery(self.module, copy, ctx))
            ctx.scope = discovery.scope
        ctx.root = copy
        ctx.in_fit = training
        ctx.interceptors += interceptors
        ctx.tables = tables
        others = groups[-1]
        give(self.numbers, others, ctx.scope)
        with (
            forward_context.forward(ctx),
            substituting(ctx.scope),
            holding(self.numbers, others),
        ):
            if isinstance(copy, Layer):
                yield copy._call_arrays, ctx
            else:
                copy.train() if training else copy.eval()
                yield (lambda args, _: copy(*args)), ctx
        self.draws |= ctx.drew and not training

    def reading(self, *groups: Arrays) -> Substitution:
        """The substitution under which weights that are read have the given values."""
        ctx = forward_context.current() or forward_context.Context()
        return Substitution(meet=functools.partial(self._read, ctx, groups))

    @contextlib.contextmanager
    def recording(self) -> Iterator[dict[str, Weight]]:
        """In the block, weights of others may be read; it yields them, by name."""
        before, self._recorded = self._recorded, {}
        try:
            yield self._recorded
        finally:
            self._recorded = before

    def _read(
        self, ctx: forward_context.Context, groups: Sequence[Arrays], part: Any
    ) -> Any:
        """What stands for a part that no copy has: a weight with its value in groups.

        A layer is called as it is, if each of its weights has one.
        """
        if random_keys.is_seed(part) or made_in(ctx, part):
            return part
        if not isinstance(part, Weight):
            for _, weight, _ in iter_weights(part):
                stand_in(weight)
            return part
        name = self._names.get(id(part), "")
        value = next((group[name] for group in groups if name in group), None)
        if value is None and self._recorded is not None:
            if not name:
                fill(part)
                self._recorded[f"{part.path} beside, {len(self._recorded)}"] = part
            return part
        if value is None:
            return refuse(part)
        buffer = Buffer(value)
        scope = current()
        assert scope is not None
        scope.add([(part, buffer)])
        return buffer

    def others_of(self, copy: nnx.Module, *groups: Arrays) -> Arrays:
        """The arrays of a copy that are no parameters, and frozen ones it assigned."""
        others, frozen = set(self.others), set(self.frozen)
        assignable = {n: v for group in groups for n, v in group.items() if n in frozen}
        by_path = dict(nnx.to_flat_state(nnx.state(copy)))
        arrays = {}
        for path, name in zip(self._paths, self._order, strict=True):
            value = _leaf(by_path[path])
            # What was not assigned is the same tracer: programs only pass it on.
            if name in others or (name in assignable and value is not assignable[name]):
                arrays[name] = value
        numbers = self.numbers.keys() & groups[-1].keys()
        return arrays | {name: groups[-1][name] for name in numbers}

    def holds_those_of(self, other: SplitModule) -> bool:
        """Whether the constants are the same objects."""
        mine, theirs = self.constants, other.constants
        return mine.keys() == theirs.keys() and all(
            mine[name] is theirs[name] for name in mine
        )

    @property
    def has_regularizers(self) -> bool:
        """Whether a trained weight has a regularizer."""
        metas = (self.variables[name].get_metadata() for name in self.params)
        return any(meta.get("regularizer") for meta in metas)

    def penalty(self, params: Arrays) -> jax.Array | None:
        """Sum of the weights' regularizers, or ``None`` if there are none."""
        terms = [
            meta["regularizer"](params[name])
            for name in self.params
            if (meta := self.variables[name].get_metadata()).get("regularizer")
        ]
        return functools.reduce(operator.add, terms) if terms else None

    def constrain(self, params: Arrays) -> Arrays:
        """Parameters after their constraints."""
        return apply_constraints(params, self.constraints)

    @property
    def constraints(self) -> dict[str, Callable]:
        """The constraints of trained parameters, by name."""
        return constraints_of(self.params, (self.variables[n] for n in self.params))


def _raw(variable: nnx.Variable) -> Any:
    value = variable.get_raw_value()
    as_it_is = isinstance(value, jax.Array | jax.ShapeDtypeStruct)
    return value if as_it_is else jnp.asarray(value)


def _leaf(value: Any) -> Any:
    return value.get_raw_value() if isinstance(value, nnx.Variable) else value


def _resolve(module: Any, path: tuple) -> Any:
    for key in path:
        name = str(key)  # a named tuple's entries go by their names, too
        inside = isinstance(module, list | dict) or not hasattr(module, name)
        module = module[key] if inside else getattr(module, name)
    return module
