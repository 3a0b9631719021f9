"""Forward passes of a split module, each traced once, and what they cost."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import jax

from exburn.module.reached import Discovery
from exburn.runtime.cost_model import Cost
from exburn.training.forward import Forward, check_constants, mixes_rows, trace
from exburn.training.state_holder import StateHolder

# The modes for which a program of each kind asks whether rows mix.
_MODES: dict[str | None, tuple[bool, ...]] = {
    "train": (True,),
    "test": (True, False),
    "predict": (True, False),
    None: (),
}


class ForwardCache:
    """Forward passes of a split module, each traced once."""

    def __init__(self, holder: StateHolder):
        self._holder = holder
        self.latest: Forward | None = None
        self._passes: dict[
            tuple[int, Hashable], Forward
        ] = {}  # by rows, and form of one
        self._mixing: dict[
            tuple[Hashable, bool], bool
        ] = {}  # by form of a row, and mode

    def clear(self) -> None:
        """Forgets all passes: the module is split otherwise now."""
        self._passes, self._mixing = {}, {}

    def find(self, x: Any, kind: str | None) -> Forward | None:
        """The pass over inputs, if all that a program of a kind asks is traced."""
        rows, row = _rows_and_row(x)
        answered = all((row, training) in self._mixing for training in _MODES[kind])
        return self._passes.get((rows, row)) if answered else None

    def trace(self, x: Any, kind: str | None) -> list[Discovery]:
        """Traces what ``find`` misses.

        Returns:
            What was reached by other ways than attributes: a module that comes to hold
            it is another one, whose passes are to be traced anew.
        """
        split, (rows, row) = self._holder.split, _rows_and_row(x)
        discoveries: list[Discovery] = []
        try:
            forward = self._passes.get((rows, row)) or trace(split, x, discoveries)
            for training in _MODES[kind]:
                if (row, training) not in self._mixing:
                    mixing = mixes_rows(split, forward, training, discoveries)
                    self._mixing[row, training] = mixing
        except Exception:
            if not any(discovery.met for discovery in discoveries):
                raise
            return discoveries
        if (rows, row) not in self._passes:
            check_constants(split, x)
            self._passes[rows, row] = forward
        return discoveries

    def mixes_rows(self, kind: str) -> bool:
        """Whether the latest pass may compute with its batch as a whole."""
        if (forward := self.latest) is None:
            return False
        _, row = _rows_and_row(forward.inputs)
        for training in _MODES[kind]:
            if (row, training) not in self._mixing:
                mixing = mixes_rows(self._holder.split, forward, training, [])
                self._mixing[row, training] = mixing
        return any(self._mixing[row, training] for training in _MODES[kind])

    # ------------------------------------------------------------------ costs
    def cost(self, x: Any) -> Cost | None:
        """Cost of a pass on each device, by one of any rows that was traced."""
        (rows, row), parts = _rows_and_row(x), self._holder.placement.parts
        for (traced, like), forward in self._passes.items():
            if like == row:
                return forward.cost.times(rows / traced / parts)
        return None

    def first_cost(self, rows: int | None = None) -> Cost | None:
        """Cost of the first pass that was traced, if one was, on each device.

        Args:
            rows: For a batch of so many rows; those that were traced if ``None``.
        """
        for (traced, _), forward in self._passes.items():
            parts = self._holder.placement.parts
            return forward.cost.times((rows or traced) / traced / parts)
        return None

    @property
    def times_convolutions(self) -> bool:
        """Whether XLA times convolutions on the device while it compiles.

        Two programs that do so at once disturb each other, for seconds.
        """
        cost = self.first_cost()
        convolves = cost is not None and cost.convolutions > 0
        return convolves and jax.default_backend() != "cpu"

    @property
    def blocks(self) -> tuple[tuple[str, ...], ...]:
        """Parameters of equal blocks in the first pass: ``Forward.blocks``."""
        return next((forward.blocks for forward in self._passes.values()), ())

    def joins_lookups(self, parts: int) -> bool:
        """Whether gradients of tables are made of those of the rows that were read.

        Where a table is looked into several times, and on a mesh always: its devices
        send each other rows then, and not gradients of the tables' sizes.
        """
        if parts > 1:
            return any(forward.lookups for forward in self._passes.values())
        return any(forward.repeats_lookups for forward in self._passes.values())


def _rows_and_row(x: Any) -> tuple[int, Hashable]:
    """How many rows there are, and the specs of one."""
    leaves, treedef = jax.tree.flatten(x)
    row = treedef, *((leaf.shape[1:], leaf.dtype) for leaf in leaves)
    return leaves[0].shape[0] if leaves else 0, row
