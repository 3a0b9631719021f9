"""The adapter of each row: names that a user gives, and numbers that a pass takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.compression.quantization.low_rank import RowAdapters
from exburn.errors import ArgumentError, unknown_name
from exburn.models.generation.memory import RowWeights, run_model
from exburn.models.generation.plan import GenerationPlan
from exburn.models.lora import active_name, adapter_names
from exburn.models.network import Network

_ROWS, _TOKENS = 97, 6  # of the pass that is traced: no other axis has so many


def row_adapters(model: Network, names: Sequence[str | None], op: str) -> RowAdapters:
    """The adapters of rows by their names.

    Args:
        names: One for each row; ``None`` for what is active.

    Raises:
        UnknownNameError: The model has no adapter of a name.
    """
    known, active = adapter_names(model), active_name(model)
    for name in names:
        if name is not None and name not in known:
            raise unknown_name("adapter", name, known, op=op)
    rows = [active if name is None else name for name in names]
    # In the model's order, so that other rows with these adapters share the program.
    used = tuple(name for name in known if name in rows)
    numbers = [-1 if name is None else used.index(name) for name in rows]
    return RowAdapters(np.array(numbers, np.int32), used)


def read_adapters(model: Network, adapter: Any, rows: int, op: str) -> Any:
    """The adapters that a call names, or ``None`` where the active one is computed.

    Args:
        adapter: A name for all rows, a list of one for each, or ``None``.
    """
    if adapter is None or isinstance(adapter, str):
        names = [adapter] * rows
    elif isinstance(adapter, list | tuple) and len(adapter) == rows:
        names = list(adapter)
    else:
        raise ArgumentError(
            op,
            f"adapter is a name, or a list of one for each of {rows} prompts, received "
            f"{adapter!r}",
        )
    if set(names) <= {None, active_name(model)}:
        return None
    return row_adapters(model, names, op)


def check_rows(plan: GenerationPlan, groups: Any, names: tuple[str, ...]) -> None:
    """Raises unless a model computes these adapters by row.

    A pass is traced with a number of rows that no other axis has, so that a layer
    whose first axis is another one is seen. That is done once for a plan.

    Raises:
        ArgumentError: Naming the layer.
    """
    if names in plan.adapters:
        return

    def run(weights: RowWeights, ids: Any, lengths: Any) -> Any:
        return run_model(plan.split, weights, ids, None, lengths=lengths)

    numbers = jax.ShapeDtypeStruct((_ROWS,), jnp.int32)
    ids = jax.ShapeDtypeStruct((_ROWS, plan.length or _TOKENS), jnp.int32)
    jax.eval_shape(run, RowWeights(groups, RowAdapters(numbers, names)), ids, numbers)
    plan.adapters.add(names)
