"""What was prepared for batches, by their form."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from exburn.training.fingerprint import Fingerprint
from exburn.training.forward import Forward
from exburn.training.module import SplitModule
from exburn.training.objective.objective import Objective

_FORMS = 512  # of batches: lengths of sequences, maybe


@dataclasses.dataclass(frozen=True)
class Ready:
    """What was prepared, and for what.

    Attributes:
        specs: Of the batch, ``(x, y, sample_weight)``.
        seen: What a forward pass told; ``None`` if the module's own step takes it.
        fingerprint, split, objective: The module and its losses, as they were.
        built_for: What the objective was matched to: ``Matching.purpose``.
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

    @property
    def outputs(self) -> Any:
        """Specs of the outputs; ``None`` if the module's own step takes the batch."""
        return None if self.seen is None else self.seen.outputs


class PreparedCache:
    """What was prepared for batches of each kind and form, the latest ones."""

    def __init__(self):
        self._ready: dict[tuple[str, Any], Ready] = {}

    def clear(self) -> None:
        """Forgets all of it."""
        self._ready = {}

    def keep(self, kind: str, batch: tuple, ready: Ready) -> None:
        """Keeps what was prepared, for other batches of the same form."""
        self._ready.pop(key := (kind, form_of(batch)), None)
        while len(self._ready) >= _FORMS:
            del self._ready[next(iter(self._ready))]
        self._ready[key] = ready

    def find(self, kind: str, batch: tuple) -> Ready | None:
        """What was prepared for such a batch, of a module that may have changed."""
        return self._ready.get((kind, form_of(batch)))

    def find_built(self, built_for: Any, objective: Objective) -> Ready | None:
        """What has an objective that was built for this, and may be gone back to."""
        for ready in self._ready.values():  # of another number of rows, maybe
            if ready.built_for == built_for and objective.may_recall(ready.built):
                return ready
        return None


def form_of(tree: Any, *, rows: bool = True) -> Any:
    """Structure, shapes and dtypes, by which equal forms are told.

    Args:
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
