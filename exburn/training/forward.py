"""What one abstract forward pass tells of a module, before anything is compiled."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal

from exburn.core import forward_context
from exburn.core.batch_independence import numbers_of
from exburn.errors import UnheldLayerError
from exburn.module.building import spec_like, untouched_metrics
from exburn.module.reached import Discovery
from exburn.runtime.blocks.runs import find_runs
from exburn.runtime.cost_model import Cost, count, inner_programs
from exburn.runtime.kernels.conv.dispatch import pointwise_products
from exburn.training.batch_mixing import model_mixes_rows
from exburn.training.block_stacks import are_wanted, pays
from exburn.training.fingerprint import Fingerprint
from exburn.training.module import SplitModule

_PASSING = {"convert_element_type", "reshape", "squeeze", "copy", "stop_gradient"}
# Which lead from a weight to a part of it, in another form.
_KEEPING = {*_PASSING, "transpose", "broadcast_in_dim", "slice"}


@dataclasses.dataclass(frozen=True)
class Forward:
    """What one abstract forward pass tells.

    Attributes:
        inputs: Specs of the inputs.
        cost: Cost of the pass.
        outputs: Specs of the outputs.
        numbers: What it computes with: ``batch_independence.numbers_of``.
        losses: Number of losses that layers added.
        ends: For each output the function that ends it: see ``last_functions``.
        lookups: ``(input, rows, layer)``: inputs that index a layer's table of rows;
            without ``rows`` those that are cast to integers.
        repeats_lookups: Whether a table is looked into several times.
        loses_by_row: Whether layers added losses with one number for each row.
        blocks: Names of trained parameters, of which each of several equal blocks in a
            row has one, in their order.
    """

    inputs: Any
    cost: Cost
    outputs: Any
    numbers: Counter
    losses: int = 0
    ends: tuple[str | None, ...] = ()
    lookups: tuple[tuple[int, int | None, str], ...] = ()
    repeats_lookups: bool = False
    loses_by_row: bool = False
    blocks: tuple[tuple[str, ...], ...] = ()


def trace(
    split: SplitModule, x: Any, discoveries: list[Discovery] | None = None
) -> Forward:
    """One abstract forward pass in training.

    Args:
        discoveries: Receives what the pass reaches by other ways than attributes.
    """
    seen: dict[str, Any] = {}

    def forward(groups, x):
        key = jax.random.key(0)
        out, _, ctx = split.forward(
            groups, x, training=True, key=key, discoveries=discoveries
        )
        seen["losses"] = len(ctx.losses)
        seen["loses_by_row"] = any(map(jnp.ndim, ctx.losses))
        seen["lookups"] = lookups(x, ctx)
        seen["repeats_lookups"] = _repeat(ctx)
        return out

    groups = jax.tree.map(spec_like, split.peek())
    with untouched_metrics(split.module), pointwise_products(False):
        jaxpr, specs = jax.make_jaxpr(forward, return_shape=True)(groups, x)
    ends = last_functions(jaxpr, weights=len(jax.tree.leaves(groups)))
    blocks = ()
    if are_wanted():
        blocks = parameters_of_blocks(jaxpr.jaxpr, *map(sorted, groups[:2]))
    numbers = numbers_of(jaxpr)
    return Forward(x, count(jaxpr), specs, numbers, ends=ends, blocks=blocks, **seen)


def parameters_of_blocks(
    code: Any, trained: list[str], frozen: list[str]
) -> tuple[tuple[str, ...], ...]:
    """Names of parameters of which each of several equal blocks has one.

    None of blocks with frozen matrices, which every step would put together.

    Args:
        trained, frozen: Names of the program's first inputs.
    """
    names = dict(zip(code.invars, trained, strict=False))
    still = {v for v in code.invars[len(trained) :][: len(frozen)] if v.aval.ndim > 1}
    columns: list[tuple[str, ...]] = []
    for run in find_runs(code, pays=pays):
        stacked = [[_variable(v) for v in one.values] for one in run.stacked]
        if any(not still.isdisjoint(variables) for variables in stacked):
            continue
        for variables in stacked:
            column = tuple(names.get(v, "") for v in variables)
            before = {name for other in columns for name in other}
            if "" not in column and before.isdisjoint(column):
                columns.append(column)
    return tuple(columns)


def _variable(operand: Any) -> Any:
    return None if isinstance(operand, Literal) else operand


def mixes_rows(
    split: SplitModule,
    forward: Forward,
    training: bool,
    discoveries: list[Discovery],
) -> bool:
    """Whether a pass may compute with the batch as a whole."""
    if forward.loses_by_row:
        return True

    def outputs(groups, x):
        options = {"key": jax.random.key(0), "discoveries": discoveries}
        return split.forward(groups, x, training=training, **options)[0]

    groups = jax.tree.map(spec_like, split.peek())
    with untouched_metrics(split.module), pointwise_products(False):
        form = groups, forward.inputs, forward.numbers
        return model_mixes_rows(split.module, outputs, *form)


def check_constants(split: SplitModule, x: Any) -> None:
    """Raises if a pass would keep the weights of a flax module as constants.

    ExBurn's own weights tell that they are read; those of plain flax modules are found
    among the constants of an abstract pass.
    """
    others = Fingerprint(split.module).others()
    if not others:
        return
    key, groups = jax.random.key(0), jax.tree.map(spec_like, split.peek())
    forward = functools.partial(split.forward, training=True, key=key)
    jaxpr = jax.make_jaxpr(lambda groups, x: forward(groups, x)[0])(groups, x)
    ids = {id(constant) for constant in constants(jaxpr)}
    for name, variable in others.items():
        if id(variable.get_raw_value()) in ids:
            raise UnheldLayerError(
                "fit",
                f"a compiled program reads the flax variable {name!r}, which its model "
                "does not hold, and would keep its values as they are now",
                hint="Make the flax module an attribute of the model or of a layer.",
            )


def constants(jaxpr: Any) -> Iterator[Any]:
    """The arrays that a program holds, those of programs in it, too."""
    yield from getattr(jaxpr, "consts", ())
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield from (getattr(v, "val", None) for v in eqn.invars)  # as literals
        for inner in inner_programs(eqn.params):
            yield from constants(inner)


def lookups(
    x: Any, ctx: forward_context.Context
) -> tuple[tuple[int, int | None, str], ...]:
    """The inputs that were looked up in a table as they are, or cast at most.

    And those that are cast to integers, for which no table has rows.
    """
    inputs = jax.tree.leaves(x)
    matches = []
    for indices, rows, layer in ctx.lookups:
        source = ctx.source_of(indices)
        matches += [(i, rows, layer) for i, v in enumerate(inputs) if v is source]
    return tuple(matches)


def _repeat(ctx: forward_context.Context) -> bool:
    """Whether a layer's table was looked into twice, or tables of the same name."""
    names = [name for _, rows, name in ctx.lookups if rows is not None]
    return len(set(names)) < len(names)


def last_functions(jaxpr: Any, weights: int = 0) -> tuple[str | None, ...]:
    """For each output of a program the function at its end, where the loss asks for it.

    Args:
        weights: How many of its first inputs are weights.

    Returns:
        ``"softmax"`` or ``"sigmoid"``, which make probabilities; ``"affine"`` for a
        product with a weight, or a convolution, and what is added to it, which make any
        numbers; ``None`` for any other.

    Example:
        >>> import jax.numpy as jnp
        >>> last_functions(jax.make_jaxpr(jax.nn.sigmoid)(jnp.ones(3)))
        ('sigmoid',)
        >>> w, x = jnp.ones((3, 2)), jnp.ones(3)
        >>> dense = jax.make_jaxpr(lambda w, x: x @ w + 1)(w, x)
        >>> last_functions(dense, weights=1), last_functions(dense)
        (('affine',), (None,))
    """
    program = getattr(jaxpr, "jaxpr", jaxpr)
    return _last_functions(program, {id(var) for var in program.invars[:weights]})


def _last_functions(jaxpr: Any, weights: set[int]) -> tuple[str | None, ...]:
    producers = {id(var): eqn for eqn in jaxpr.eqns for var in eqn.outvars}

    def trail(var: Any) -> tuple[Any, Any]:
        """The variable that this one is a copy of, and what computes that."""
        while (eqn := producers.get(id(var))) and eqn.primitive.name in _PASSING:
            var = eqn.invars[0]
        return var, eqn

    def source(var: Any) -> Any:
        return trail(var)[1]

    def is_softmax(eqn: Any) -> bool:
        top, bottom = source(eqn.invars[0]), producers.get(id(eqn.invars[1]))
        while bottom and bottom.primitive.name in {*_PASSING, "broadcast_in_dim"}:
            bottom = producers.get(id(bottom.invars[0]))
        return (
            top is not None
            and bottom is not None
            and top.primitive.name == "exp"
            and bottom.primitive.name == "reduce_sum"
            and source(bottom.invars[0]) is top
        )

    def is_weight(var: Any) -> bool:
        while (eqn := producers.get(id(var))) and eqn.primitive.name in _KEEPING:
            var = eqn.invars[0]
        return id(var) in weights

    def last(var: Any) -> str | None:
        origin, eqn = trail(var)
        if eqn is None:
            return None
        for name in ("jaxpr", "call_jaxpr"):  # a function of its own, or its derivative
            if name in eqn.params:
                inner = getattr(eqn.params[name], "jaxpr", eqn.params[name])
                pairs = zip(inner.invars, eqn.invars, strict=False)
                among = {id(inside) for inside, outside in pairs if is_weight(outside)}
                return _last_functions(inner, among)[eqn.outvars.index(origin)]
        match eqn.primitive.name:
            case "div":
                return "softmax" if is_softmax(eqn) else None
            case "logistic":
                return "sigmoid"
            case "dot_general" | "conv_general_dilated":
                return "affine" if any(map(is_weight, eqn.invars)) else None
            case "add" | "add_any":
                return "affine" if "affine" in map(last, eqn.invars) else None
        return None

    return tuple(last(var) for var in jaxpr.outvars)
