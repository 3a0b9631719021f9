"""Whether there is memory for a lane, before its weights are drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from exburn.core.printing import size_text
from exburn.errors import OutOfMemoryError
from exburn.models import Model
from exburn.models.session import require_trainer
from exburn.module.building import keeping_specs, spec_like
from exburn.module.traversal import iter_weights
from exburn.training.memory import free_bytes
from exburn.training.placement import OneDevice
from exburn.tuning.records import Trial, describe

_FEW = 32 << 20  # bytes of weights that are not counted further


def check_room(
    make: Callable[[], Model], values: Trial, placement: OneDevice | None
) -> None:
    """Raises if a model cannot be trained in the memory that there is.

    Its weights are not drawn: their shapes are enough.
    """
    if not any("/" in path for path in values):
        return  # of no layer
    with keeping_specs():
        model = make()
    weights = {
        path: (spec_like(weight.get_raw_value()), learns)
        for path, weight, learns in iter_weights(model)
    }
    if _bytes_of([spec for spec, _ in weights.values()]) < _FEW:
        return
    trained = {path: spec for path, (spec, learns) in weights.items() if learns}
    optimizer = require_trainer(model, "sweep").holder.optimizer
    slots = jax.eval_shape(optimizer.init, trained)
    need = _bytes_of([[spec for spec, _ in weights.values()], trained, slots])
    free = free_bytes(() if placement is None else placement.local_devices)
    if need > free:
        raise too_large(values, need, free)


def too_large(values: Trial, need: int, free: int) -> OutOfMemoryError:
    """The error that says with which values a lane does not fit."""
    values_text = f" with {describe(values)}" if values else ""
    return OutOfMemoryError(
        "sweep",
        f"a lane{values_text} does not fit into the device's memory",
        {"a lane": size_text(need), "available": size_text(free)},
        hint="Leave such values out of over=, or train fewer rows in a step.",
    )


def _bytes_of(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
