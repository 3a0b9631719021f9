"""The plan of a pruning: which weights, how far, and when; its steps in programs."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from exburn.compression.masking.magnitude import keys_of, least, least_of_each
from exburn.compression.masking.masks import (
    add_mask,
    count_zeros,
    iter_masks,
    join,
    mask_of,
    mask_values,
    pack,
    places_of,
    remove_mask,
    unpack,
)
from exburn.compression.masking.records import reading_record
from exburn.compression.masking.schedules import (
    ConstantSparsity,
    SparsitySchedule,
    check_schedule,
)
from exburn.compression.masking.summed_axes import summed_axes
from exburn.core import registry
from exburn.core.checks import check_choice, check_rate
from exburn.errors import ArgumentError
from exburn.layers import Embedding
from exburn.layers.convolution.depthwise import DepthwiseConv
from exburn.module.building import materialize
from exburn.module.selection import layer_paths
from exburn.module.traversal import iter_modules
from exburn.module.variable import Buffer, Static, exact_weight

_PLAN, STEP = "_pruning", "pruning_step"
_SCOPES = "global", "layer"


@dataclasses.dataclass(frozen=True)
class PruningPlan:
    """How the weights of a model are pruned.

    Attributes:
        pattern: ``(n, m)``: n of m neighbours are left; ``None`` for any.
        scope: ``"global"``: the least of all weights go; ``"layer"``: of each.
        axes: The weights by their paths from the model, each with the last axis that
            its product sums over, along which neighbours lie.
    """

    sparsity: float
    schedule: SparsitySchedule
    pattern: tuple[int, int] | None
    scope: str
    axes: dict[str, int]
    shapes: dict[str, tuple[int, ...]]

    @property
    def record(self) -> dict[str, Any]:
        """What a file tells of it, JSON-able."""
        layers = dict.fromkeys(path.rpartition("/")[0] for path in self.axes)
        return {
            "kind": "pruning",
            "sparsity": self.sparsity,
            "schedule": registry.serialize(self.schedule),
            "pattern": self.pattern and ":".join(map(str, self.pattern)),
            "scope": self.scope,
            "weights": list(self.axes),
            "layers": list(layers),
        }

    def advance(
        self,
        weights: Mapping[str, Any],
        masks: Mapping[str, Any],
        step: Any,
        before: Any = None,
        resting: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The masks that hold from a step on.

        Args:
            before: The step up to which the masks were renewed; ``None`` if they never
                were.
            resting: Its frozen weights: their masks stay, and where the least of all
                weights go they are among these.
        """
        weights, resting = dict(weights), dict(resting or {})
        if not weights:
            return {}
        whole = self.pattern is None and self.scope == "global"
        resting = resting if whole else {}
        masks = {name: masks[name] for name in (*weights, *resting)}
        if self.pattern is None:
            due, renew = self._by_magnitude(masks, step, before, resting)
        else:
            due, renew = self._in_groups(masks, step, before)

        def change(weights: dict, masks: dict) -> dict[str, Any]:
            # A loop of one round: where lanes of a sweep compute side by side, both
            # branches of a condition run at each step, but no loop of no round.
            rounds = due.astype(jnp.int32)
            return jax.lax.fori_loop(0, rounds, lambda _, m: renew(weights, m), masks)

        values = weights | resting
        new = jax.lax.cond(due, change, lambda _, masks: masks, values, masks)
        return {name: new[name] for name in weights}

    def _share(self, step: Any) -> jax.Array:
        return jnp.clip(jnp.asarray(self.schedule(step), jnp.float32), 0, 1)

    def _by_magnitude(
        self, masks: dict, step: Any, before: Any, resting: Mapping[str, Any]
    ) -> tuple[Any, Callable]:
        """Whether more numbers are to go than have gone, and the masks if so.

        Beside weights that rest, only where the schedule wants more than before: they
        may lack some, and masks made anew at each step would grow without it.
        """
        names, share = list(masks), self._share(step)
        groups = np.zeros(len(names), int)
        if self.scope == "layer":
            groups = np.arange(len(names))
        sizes = np.zeros(groups[-1] + 1)
        np.add.at(sizes, groups, [math.prod(self.shapes[name]) for name in names])
        # Exact at the end: a float32 cannot tell all numbers of a large model apart.
        final = np.rint(self.sparsity * sizes).astype(np.uint32)

        def count_wanted(share: Any) -> jax.Array:
            part = jnp.floor(share * final.astype(np.float32)).astype(jnp.uint32)
            return jnp.where(share >= 1, final, part)

        goal = count_wanted(share)
        zeros = jnp.stack([count_zeros(masks[name]) for name in names])
        have = jnp.zeros(len(sizes), jnp.uint32).at[groups].add(zeros)
        due = jnp.any(goal > have)
        if resting and before is not None:
            due &= jnp.any(goal > count_wanted(self._share(before)))

        def renew(weights: dict, masks: dict) -> dict[str, Any]:
            keys = [keys_of(weights[name], masks[name]) for name in names]
            gone = least(keys, groups.tolist(), jnp.maximum(goal, have))
            return {name: pack(~g) for name, g in zip(names, gone, strict=True)}

        return due, renew

    def _in_groups(self, masks: dict, step: Any, before: Any) -> tuple[Any, Callable]:
        """The same of groups of neighbours, of which as many go of each."""
        assert self.pattern is not None
        left, size = self.pattern

        def of_each(step: Any) -> jax.Array:
            share = self._share(step)
            return jnp.floor(share * (size - left) + 1e-4).astype(jnp.int32)

        def lacks(masks: dict) -> Any:
            lacking = []
            for name, mask in masks.items():
                alive = unpack(mask, self.shapes[name])
                rows = jnp.moveaxis(alive, self.axes[name], -1).reshape(-1, size)
                lacking.append(jnp.any(jnp.sum(~rows, axis=-1) < each))
            return jnp.any(jnp.stack(lacking))

        each = of_each(step)
        if before is None:
            due = lacks(masks)
        else:
            # Most steps change nothing, and a count of bits is told of that: it is as
            # it was left, unless earlier masks had other zeros, too.
            zeros = jnp.stack([count_zeros(mask) for mask in masks.values()])
            rows = [math.prod(self.shapes[name]) // size for name in masks]
            zeros_stay = jnp.all(zeros == each * jnp.asarray(rows, jnp.int32))
            sure = zeros_stay & (of_each(before) == each)
            due = jax.lax.cond(sure, lambda masks: jnp.bool_(False), lacks, masks)

        def renew(weights: dict, masks: dict) -> dict[str, Any]:
            return {
                name: pack(
                    ~least_of_each(
                        keys_of(weights[name], mask), self.axes[name], size, each
                    )
                    & unpack(mask, weights[name].shape)
                )
                for name, mask in masks.items()
            }

        return due, renew


# ------------------------------------------------------------------ making a plan
def make_plan(
    model: Any,
    sparsity: Any,
    schedule: Any,
    pattern: Any,
    scope: Any,
    chosen: set[str],
    *,
    named: bool,
) -> PruningPlan:
    """Decides which weights are pruned, and how; changes nothing.

    Args:
        sparsity: Share of the numbers that go; that of the pattern if None, else 0.8.
        schedule: A ``SparsitySchedule``; at once if None.
        named: Whether the user chose them: then tables and depthwise kernels, too.
    """
    op = "prune"
    scope = check_choice(op, "scope", scope, _SCOPES)
    schedule = ConstantSparsity() if schedule is None else schedule
    check_schedule(op, schedule)
    weights = dict(_find_weights(model, chosen, named))
    axes = {path: axis for path, (axis, _) in weights.items()}
    shapes = {path: shape for path, (_, shape) in weights.items()}
    if not axes:
        raise ArgumentError(
            op,
            "no layer can be pruned",
            {"layers": ", ".join(sorted(chosen)) or "none"},
            hint="Dense, EinsumDense, convolutions, attention and recurrent layers can "
            "if their weights are not in few bits; Embedding and depthwise ones if "
            "filters names them.",
        )
    if pattern is None:
        sparsity = 0.8 if sparsity is None else sparsity
        sparsity = check_rate(op, "sparsity", sparsity, below_one=True)
        return PruningPlan(sparsity, schedule, None, scope, axes, shapes)
    left, size = parse_pattern(pattern)
    exact = 1 - left / size
    if sparsity is not None and check_rate(op, "sparsity", sparsity) != exact:
        raise ArgumentError(
            op,
            f"the pattern {pattern!r} is a sparsity of {exact:g}, received {sparsity}",
            hint="Leave sparsity out.",
        )
    summed = {path: shapes[path][axis] for path, axis in axes.items()}
    unfit = {path: n for path, n in summed.items() if n % size}
    if unfit:
        fits = list(dict.fromkeys(p.rpartition("/")[0] for p in axes if p not in unfit))
        raise ArgumentError(
            op,
            f"the pattern {pattern!r} needs axes that {size} divides",
            {path: f"axis {axes[path]} has {n} entries" for path, n in unfit.items()},
            hint=f"Choose others: filters={fits}." if fits else "Take another pattern.",
        )
    return PruningPlan(exact, schedule, (left, size), scope, axes, shapes)


def parse_pattern(pattern: Any) -> tuple[int, int]:
    """The numbers of a pattern ``"n:m"``.

    Example:
        >>> parse_pattern("2:4")
        (2, 4)
    """
    match = re.fullmatch(r"(\d{1,4}):(\d{1,4})", str(pattern))
    left, size = map(int, match.groups()) if match else (0, 0)
    if not 1 <= left < size:
        raise ArgumentError(
            "prune",
            f"a pattern is 'n:m' with 1 ≤ n < m, or 'channels', received {pattern!r}",
            hint="'2:4' leaves two of four neighbours.",
        )
    return left, size


def prunable(layer: Any) -> dict[str, int]:
    """The weights of a layer that can be pruned, with the last axis that is summed.

    Those of few bits cannot: they are not trained.
    """
    if type(layer).__module__.startswith("exburn.layers.preprocessing"):
        return {}
    return {
        name: axes[-1]
        for name, axes in (summed_axes(layer) or {}).items()
        if isinstance(exact_weight(getattr(layer, name, None)), nnx.Param)
    }


def _find_weights(
    model: Any, chosen: set[str], named: bool
) -> Iterator[tuple[str, tuple[int, tuple[int, ...]]]]:
    """Paths of the weights to be pruned, with axis and shape.

    Tables and depthwise kernels are left alone unless they are named: they are few
    numbers of many outputs (Zhu & Gupta leave the latter out, too).
    """
    for path, layer in layer_paths(model).items():
        if path not in chosen:
            continue
        for name, axis in prunable(layer).items():
            spares = isinstance(layer, Embedding) or (
                isinstance(layer, DepthwiseConv) and name != "pointwise_kernel"
            )
            if named or not spares:
                yield join(path, name), (axis, tuple(getattr(layer, name).shape))


# ------------------------------------------------------------------ plans of models
def install(model: Any, plan: PruningPlan) -> None:
    """Gives a model a plan, a count of steps, and masks; they forbid nothing yet."""
    for _, layer, name in places_of(model, plan.axes):
        add_mask(layer, name)
    step = Buffer(jnp.zeros((), jnp.int32), label=STEP, scalars=0, own_dtype=True)
    setattr(model, STEP, step)
    setattr(model, _PLAN, Static(plan))
    materialize(model)


def begin(model: Any, plan: PruningPlan) -> None:
    """Prunes as far as the schedule says before the first step."""
    masks, weights = {}, {}
    for path, layer, name in places_of(model, plan.axes):
        weights[path] = exact_weight(getattr(layer, name))
        masks[path] = mask_of(layer, name)
    new = jax.jit(plan.advance)(
        {path: w.get_value() for path, w in weights.items()},
        {path: m.get_value() for path, m in masks.items()},
        np.int32(0),
    )
    for path, bits in new.items():
        masks[path].set_raw_value(bits)
        weights[path].set_raw_value(mask_values(weights[path].get_value(), bits))


def iter_plans(root: Any) -> Iterator[tuple[str, Any, PruningPlan]]:
    """The plans of the models in a module: path, model, plan of the masks it has."""
    for path, module in iter_modules(root):
        if (plan := vars(module).get(_PLAN)) is None:
            continue
        masks = {join(p, name) for p, _, name, _ in iter_masks(module)}
        axes = {w: axis for w, axis in plan.value.axes.items() if w in masks}
        yield path, module, dataclasses.replace(plan.value, axes=axes)


def forget(model: Any) -> None:
    """Takes away plans of which no mask is left."""
    for _, module, plan in list(iter_plans(model)):
        if not plan.axes:
            _drop(module)


def drop_plans(model: Any) -> None:
    """Takes away all plans; masks stay as they are."""
    for _, module, _ in list(iter_plans(model)):
        _drop(module)


def strip(model: Any) -> None:
    """Takes masks and plans away; zeros stay, and may be trained from now on."""
    for _, layer, name, _ in list(iter_masks(model)):
        remove_mask(layer, name)
    drop_plans(model)


def _drop(module: Any) -> None:
    delattr(module, _PLAN)
    delattr(module, STEP)


# ------------------------------------------------------------------ in files
def records_of(model: Any) -> Iterator[dict[str, Any]]:
    """Records of all masks in a model, from which ``restore`` makes them again.

    Masks of layers that came from another model have no plan here.
    """
    recorded_paths: set[str] = set()
    for path, _, plan in iter_plans(model):
        record = plan.record
        for key in ("weights", "layers"):
            record[key] = [join(path, one) for one in record[key]]
        recorded_paths.update(record["weights"])
        yield record | {"model": path}
    masks = ((join(p, name), p) for p, _, name, _ in iter_masks(model))
    rest = {weight: path for weight, path in masks if weight not in recorded_paths}
    yield {
        "kind": "pruning",
        "weights": list(rest),
        "layers": list(dict.fromkeys(rest.values())),
    }


def restore(model: Any, record: Mapping[str, Any]) -> None:
    """Puts the masks of a record in place; their values are still to be read."""
    with reading_record("the pruning"):
        axes, shapes = {}, {}
        for path, layer, name in places_of(model, map(str, record["weights"])):
            axes[path] = prunable(layer)[name]
            shapes[path] = tuple(getattr(layer, name).shape)
            add_mask(layer, name)
        if "schedule" in record:
            owner = dict(iter_modules(model))[record["model"]]
            start = f"{record['model']}/" if record["model"] else ""
            pattern = record["pattern"]
            if pattern is not None:
                pattern = parse_pattern(pattern)
                if any(shapes[w][axis] % pattern[1] for w, axis in axes.items()):
                    raise ValueError(f"{record['pattern']} does not divide an axis")
            schedule = registry.deserialize(record["schedule"])
            if not isinstance(schedule, SparsitySchedule):
                raise TypeError(f"{schedule!r} is no schedule")
            plan = PruningPlan(
                check_rate("prune", "sparsity", record["sparsity"], below_one=True),
                schedule,
                pattern,
                check_choice("prune", "scope", record["scope"], _SCOPES),
                {path.removeprefix(start): axis for path, axis in axes.items()},
                {path.removeprefix(start): shape for path, shape in shapes.items()},
            )
            install(owner, plan)
    materialize(model)
