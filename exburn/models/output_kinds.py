"""Kinds of a model's outputs: logits, probabilities, or values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from exburn.core.symbolic_shapes import public_shape
from exburn.errors import NotBuiltError
from exburn.losses.catalogue import as_loss
from exburn.module.building import inspect_call
from exburn.training.forward import last_functions


@dataclasses.dataclass(frozen=True)
class OutputKind:
    """The kind of one output of a model.

    Attributes:
        family: ``"softmax"``, one distribution over the last axis; ``"sigmoid"``, a
            probability for each entry; ``"values"``, anything else.
        logits: Whether the softmax or sigmoid is still to be taken.
    """

    family: str
    logits: bool
    shape: tuple[Any, ...]


def output_kinds(model: Any, loss: Any = None, *, op: str = "") -> list[OutputKind]:
    """The kinds of a model's outputs, by its last functions, and by its loss."""
    traced = inspect_call(model)
    if traced is None:
        raise NotBuiltError(
            op or "output_kinds",
            f"{model.name!r} has not been called yet, so that its outputs are unknown",
            hint="Call it once, on data or on exburn.Input(shape).",
        )
    program = traced[0]
    ends = last_functions(program)
    losses = loss_of_each(model, len(ends), loss)
    shapes = [public_shape(aval.shape) for aval in program.out_avals]
    return [
        OutputKind(*_kind(end, one, shape), shape)
        for end, one, shape in zip(ends, losses, shapes, strict=True)
    ]


def loss_of_each(model: Any, outputs: int, loss: Any = None) -> list[Any]:
    """The loss of each of so many outputs, by default ``compile``'s; or ``None``."""
    loss = model.loss if loss is None else loss
    if isinstance(loss, Mapping):
        named = getattr(model, "graph", None) is not None
        names = list(model.output_names) if named else sorted(loss)
        loss = [loss.get(name) for name in names]
    if isinstance(loss, list | tuple):
        return [*loss, *[None] * outputs][:outputs]
    return [loss] * outputs


def _kind(end: str | None, loss: Any, shape: tuple[Any, ...]) -> tuple[str, bool]:
    """The family of an output, and whether it is logits."""
    if end is not None:
        return end, False
    loss = as_loss(loss) if loss is not None else None
    logits = getattr(loss, "from_logits", None)
    if logits is None:
        return "values", False
    binary = type(loss).__name__.startswith("Binary") or shape[-1] == 1
    return "sigmoid" if binary else "softmax", bool(logits)
