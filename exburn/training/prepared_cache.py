"""What was prepared for batches of one form."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from exburn.training.fingerprint import Fingerprint
from exburn.training.forward import Forward
from exburn.training.module import SplitModule
from exburn.training.objective.objective import Objective


@dataclasses.dataclass(frozen=True)
class Ready:
    """What was prepared, and for what.

    Attributes:
        specs: Of the batch, ``(x, y, sample_weight)``.
        seen: What a forward pass told; ``None`` if the module's own step takes it.
        fingerprint, split, objective: The module and its losses, as they were.
        built_for: What the objective was built for.
        built: What it made for that: ``Objective.built_parts``.
        logs: Names of the logs of the module's own step.
    """

    specs: tuple
    seen: Forward | None
    fingerprint: Fingerprint
    split: SplitModule
    objective: Objective
    built_for: Any
    built: dict[str, Any]
    logs: list[str]


def form_of(tree: Any, *, rows: bool = True) -> Any:
    """Structure, shapes and dtypes, by which equal forms are told.

    Args:
        tree: A batch.
        rows: Whether the number of rows counts; else only if it is one or several.

    Example:
        >>> three, four = jax.numpy.ones((3, 2)), jax.numpy.ones((4, 2))
        >>> form_of(three) == form_of(four)
        False
        >>> form_of(three, rows=False) == form_of(four, rows=False)
        True
    """
    leaves, treedef = jax.tree.flatten(tree)
    if rows:
        return treedef, tuple((leaf.shape, leaf.dtype) for leaf in leaves)
    shapes = [(leaf.shape[:1] == (1,), leaf.shape[1:]) for leaf in leaves]
    return treedef, shapes, [leaf.dtype for leaf in leaves]


def rows_and_row(x: Any) -> tuple[int, str]:
    """How many rows there are, and the specs of one."""
    leaves, treedef = jax.tree.flatten(x)
    row = f"{treedef} {[(leaf.shape[1:], str(leaf.dtype)) for leaf in leaves]}"
    return leaves[0].shape[0] if leaves else 0, row
