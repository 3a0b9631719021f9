"""Losses and metrics matched to a model's outputs, once for each form of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from exburn.core.substitution import substituting
from exburn.errors import ExBurnError
from exburn.training.forward import Forward
from exburn.training.objective.objective import Objective
from exburn.training.objective.stateful_metrics import OwnMetrics
from exburn.training.prepared_cache import PreparedCache, form_of
from exburn.training.state_holder import StateHolder


class Matching:
    """What losses and metrics are matched to, and for which outputs they were.

    Attributes:
        purpose: What the objective was matched to last; ``None`` if to nothing.
    """

    def __init__(self, holder: StateHolder, prepared: PreparedCache):
        self._holder, self._prepared = holder, prepared
        self.purpose: Any = None
        self._without_targets: Any = None  # the last purpose that knows none

    @property
    def has_targets(self) -> bool:
        """Whether the targets are matched, too: a ``compute_loss`` may pass others."""
        return self.purpose != self._without_targets

    def match(
        self,
        objective: Objective,
        forward: Forward,
        y: Any,
        w: Any,
        names: Callable[[Any], list[str] | None] | None,
        op: str,
    ) -> None:
        """Matches losses and metrics to outputs, unless they are."""
        module, split = self._holder.module, self._holder.split
        # A compute_loss of the model's own matches it, too, for all of a batch.
        own_loss = getattr(module, "own_compute_loss", None) is not None
        form = form_of((forward.outputs, y, w), rows=own_loss)
        purpose = objective, split, form, forward.ends
        if purpose == self.purpose:
            return
        if (ready := self._prepared.find_built(purpose, objective)) is not None:
            objective.recall(ready.built)
            self.purpose = purpose
            return
        self.purpose = None  # until this succeeds
        outputs = names(forward.outputs) if names else None
        with substituting(split.reading()):
            try:
                objective.build(forward.outputs, y, w, outputs, forward.ends, op)
            except ExBurnError:  # it may pass on targets of another form
                if not own_loss or objective.has_metrics:
                    raise
                nothing = forward.outputs, None, None, outputs, forward.ends
                objective.build(*nothing, op)
                self._without_targets = purpose
        objective.own = OwnMetrics(module, [m.metric for m in objective.meters])
        objective.logged = getattr(module, "logged_names", None)
        self.purpose = purpose
