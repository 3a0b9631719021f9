"""Values of real data that a compiled program could not complain about."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from exburn import context
from exburn.errors import DataError, ExBurnError
from exburn.flops import Cost
from exburn.shapes import describe, plain

__all__ = [
    "Forward",
    "ends_in_probabilities",
    "in_batch",
    "check_ids",
    "lookups",
    "noted",
    "on_host",
]

_COPIED = 64 << 20  # bytes that are brought back from an accelerator to be looked at


@dataclasses.dataclass(frozen=True)
class Forward:
    """What one abstract forward pass tells.

    Attributes:
        cost: Cost of the pass.
        outputs: Specs of the outputs.
        losses: Number of losses that layers added.
        probabilities: For each output whether it ends in a softmax or sigmoid.
        lookups: ``(input, rows, layer)``: inputs that index a layer's table of rows.
    """

    cost: Cost
    outputs: Any
    losses: int = 0
    probabilities: tuple[bool, ...] = ()
    lookups: tuple[tuple[int, int, str], ...] = ()


def lookups(x: Any, pass_: context.Context) -> tuple[tuple[int, int, str], ...]:
    """The inputs that were looked up in a table as they are, or cast at most."""
    inputs = jax.tree.leaves(x)
    found = []
    for indices, rows, layer in pass_.lookups:
        source = pass_.source_of(indices)
        found += [(i, rows, layer) for i, v in enumerate(inputs) if v is source]
    return tuple(found)


def check_ids(x: Any, lookups: tuple[tuple[int, int, str], ...], op: str) -> None:
    """Raises unless every looked-up value is a whole number below the table's rows.

    Raises:
        DataError: Naming the first such value, its row and the layer.
    """
    if not lookups:
        return
    named = jax.tree_util.tree_leaves_with_path(x)
    for place, rows, layer in lookups:
        path, array = named[place]
        ids = on_host(array)
        if ids is None or not ids.size:
            continue
        whole = ids.dtype.kind != "f" or bool((ids == np.floor(ids)).all())
        if whole and ids.min() >= 0 and ids.max() < rows:
            continue
        bad = ~((ids >= 0) & (ids < rows) & (ids == np.floor(ids)))
        at = np.unravel_index(int(bad.argmax()), ids.shape)
        raise DataError(
            op,
            f"the ids in x{jax.tree_util.keystr(path)} must be whole numbers from 0 to "
            f"{rows - 1}",
            {
                "first bad value": f"{ids[at]} at row {at[0]}, position "
                f"{tuple(map(int, at))}",
                "bad values": f"{int(bad.sum())} of {ids.size}",
                "layer": layer,
            },
            hint=f"The table of {layer!r} has {rows} rows: raise its input_dim, or "
            "number the ids anew.",
        )


def on_host(array: Any) -> np.ndarray | None:
    """The array in host memory, unless that meant to bring a large one back."""
    if isinstance(array, np.ndarray):
        return array
    near = all(device.platform == "cpu" for device in array.devices())
    return np.asarray(array) if near or array.nbytes <= _COPIED else None


@contextlib.contextmanager
def noted(where: str, y_true: Any, y_pred: Any) -> Iterator[None]:
    """A foreign exception of the block keeps its type, and says where it happened."""
    try:
        yield
    except ExBurnError as error:
        plain(error)
        raise
    except Exception as error:
        received = ", ".join(describe(v) for v in jax.tree.leaves((y_true, y_pred)))
        error.add_note(f"{where}: received {received}")
        notes = error.__notes__
        notes[:] = [n for n in notes if n != where]  # the loss' own, shorter one
        raise


@contextlib.contextmanager
def in_batch(done: int, of: str) -> Iterator[None]:
    """Errors of the block say where: a loader's batches may change their shape."""
    try:
        yield
    except ExBurnError as error:
        error.add_note(f"in batch {done} of the {of}, or after it")
        raise


_PASSING = {"convert_element_type", "reshape", "squeeze", "copy", "stop_gradient"}


def ends_in_probabilities(jaxpr: Any) -> tuple[bool, ...]:
    """For each output of a program whether a softmax or sigmoid makes it.

    Example:
        >>> import jax.numpy as jnp
        >>> program = jax.make_jaxpr(lambda x: (jax.nn.softmax(x), x * 2))(jnp.ones(3))
        >>> ends_in_probabilities(program)
        (True, False)
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

    def is_probability(var: Any) -> bool:
        origin, eqn = trail(var)
        if eqn is None:
            return False
        if "jaxpr" in eqn.params:  # a function that was jitted by itself
            inner = ends_in_probabilities(eqn.params["jaxpr"])
            return inner[eqn.outvars.index(origin)]
        if eqn.primitive.name == "div":
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
        return eqn.primitive.name == "logistic"

    return tuple(is_probability(var) for var in jaxpr.outvars)
