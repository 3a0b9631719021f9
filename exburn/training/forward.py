"""What one abstract forward pass tells of a module, before anything is compiled."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core import forward_context
from exburn.core.symbolic_shapes import plain
from exburn.errors import ExBurnError, UnheldLayerError
from exburn.kernels.conv.dispatch import pointwise_products
from exburn.module.building import spec_like, untouched_metrics
from exburn.module.reached import Discovery
from exburn.runtime.cost_model import Cost, count, inner_programs
from exburn.training.batch_mixing import model_mixes_rows
from exburn.training.fingerprint import Fingerprint
from exburn.training.module import SplitModule

_PASSING = {"convert_element_type", "reshape", "squeeze", "copy", "stop_gradient"}


@dataclasses.dataclass(frozen=True)
class Forward:
    """What one abstract forward pass tells.

    Attributes:
        cost: Cost of the pass.
        outputs: Specs of the outputs.
        losses: Number of losses that layers added.
        probabilities: For each output whether it ends in a softmax or sigmoid.
        lookups: ``(input, rows, layer)``: inputs that index a layer's table of rows;
            without ``rows`` those that are cast to integers.
        repeats_lookups: Whether a table is looked into several times.
        mixes_rows: Whether it may compute with the batch as a whole.
    """

    cost: Cost
    outputs: Any
    losses: int = 0
    probabilities: tuple[bool, ...] = ()
    lookups: tuple[tuple[int, int | None, str], ...] = ()
    repeats_lookups: bool = False
    mixes_rows: bool = False


def trace(
    split: SplitModule, x: Any, discoveries: list[Discovery] | None = None
) -> Forward:
    """One abstract forward pass in training.

    Args:
        split: The module.
        x: Specs of the inputs of a batch.
        discoveries: Receives what the pass reaches by other ways than attributes.
    """
    told: dict[str, Any] = {}

    def forward(groups, x, training=True):
        key = jax.random.key(0)
        out, _, ctx = split.forward(
            groups, x, training=training, key=key, discoveries=discoveries
        )
        if training:
            told["losses"] = len(ctx.losses)
            told["sums"] = any(map(jnp.ndim, ctx.losses))  # of one for each row
            told["lookups"] = lookups(x, ctx)
            told["repeats_lookups"] = _repeat(ctx)
        return out

    groups = jax.tree.map(spec_like, split.peek())
    try:
        with untouched_metrics(split.module), pointwise_products(False):
            jaxpr, specs = jax.make_jaxpr(forward, return_shape=True)(groups, x)
            cost = count(jaxpr)  # of these rows
            mixes = model_mixes_rows(split.module, forward, groups, x)
            mixes |= told.pop("sums")
    except ExBurnError as error:
        plain(error)
        raise
    probabilities = ends_in_probabilities(jaxpr)
    return Forward(cost, specs, probabilities=probabilities, mixes_rows=mixes, **told)


def check_constants(split: SplitModule, x: Any) -> None:
    """Raises if a pass would keep the weights of a flax module as constants.

    ExBurn's own weights tell that they are read; those of plain flax modules are found
    among the constants of an abstract pass.

    Args:
        split: The module.
        x: Specs of the inputs of a batch.

    Raises:
        UnheldLayerError: A function or an object leads to a flax module that no layer
            of the model holds.
    """
    others = Fingerprint(split.module).others()
    if not others:
        return
    key, groups = jax.random.key(0), jax.tree.map(spec_like, split.peek())
    forward = functools.partial(split.forward, training=True, key=key)
    jaxpr = jax.make_jaxpr(lambda groups, x: forward(groups, x)[0])(groups, x)
    kept = {id(constant) for constant in constants(jaxpr)}
    for name, variable in others.items():
        if id(variable.get_raw_value()) in kept:
            raise UnheldLayerError(
                "fit",
                f"a compiled program reads the flax variable {name!r}, which its model "
                "does not hold, and would keep its values as they are now",
                hint="Make the flax module an attribute of the model or of a layer.",
            )


def constants(jaxpr: Any) -> Iterator[Any]:
    """The arrays that a program holds, those of programs in it, too.

    Example:
        >>> weight = jnp.ones(3)
        >>> jaxpr = jax.make_jaxpr(lambda x: x * weight)(jnp.zeros(3))
        >>> any(constant is weight for constant in constants(jaxpr))
        True
    """
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
    found = []
    for indices, rows, layer in ctx.lookups:
        source = ctx.source_of(indices)
        found += [(i, rows, layer) for i, v in enumerate(inputs) if v is source]
    return tuple(found)


def _repeat(ctx: forward_context.Context) -> bool:
    """Whether a layer's table was looked into twice, or tables of the same name."""
    names = [name for _, rows, name in ctx.lookups if rows is not None]
    return len(set(names)) < len(names)


def ends_in_probabilities(jaxpr: Any) -> tuple[bool, ...]:
    """For each output of a program whether a softmax or sigmoid makes it.

    Example:
        >>> import jax.numpy as jnp
        >>> program = jax.make_jaxpr(lambda x: (jax.nn.softmax(x), x * 2))(jnp.ones(3))
        >>> ends_in_probabilities(program)
        (True, False)
    """
    return tuple(end is not None for end in last_activations(jaxpr))


def last_activations(jaxpr: Any) -> tuple[str | None, ...]:
    """For each output of a program the function at its end that makes probabilities.

    ``"softmax"``, ``"sigmoid"``, or ``None`` for any other.

    Example:
        >>> import jax.numpy as jnp
        >>> program = jax.make_jaxpr(lambda x: (jax.nn.sigmoid(x), x * 2))(jnp.ones(3))
        >>> last_activations(program)
        ('sigmoid', None)
    """
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    made = {id(var): eqn for eqn in jaxpr.eqns for var in eqn.outvars}

    def trail(var: Any) -> tuple[Any, Any]:
        """The variable that this one is a copy of, and what computes that."""
        while (eqn := made.get(id(var))) and eqn.primitive.name in _PASSING:
            var = eqn.invars[0]
        return var, eqn

    def source(var: Any) -> Any:
        return trail(var)[1]

    def is_softmax(eqn: Any) -> bool:
        top, bottom = source(eqn.invars[0]), made.get(id(eqn.invars[1]))
        while bottom and bottom.primitive.name in {*_PASSING, "broadcast_in_dim"}:
            bottom = made.get(id(bottom.invars[0]))
        return (
            top is not None
            and bottom is not None
            and top.primitive.name == "exp"
            and bottom.primitive.name == "reduce_sum"
            and source(bottom.invars[0]) is top
        )

    def activation(var: Any) -> str | None:
        origin, eqn = trail(var)
        if eqn is None:
            return None
        for name in ("jaxpr", "call_jaxpr"):  # a function of its own, or its derivative
            if name in eqn.params:
                inner = last_activations(eqn.params[name])
                return inner[eqn.outvars.index(origin)]
        if eqn.primitive.name == "div":
            return "softmax" if is_softmax(eqn) else None
        return "sigmoid" if eqn.primitive.name == "logistic" else None

    return tuple(activation(var) for var in jaxpr.outvars)
