"""``EarlyStopping`` of each lane of a sweep, as of its own ``fit``."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from exburn.callbacks import EarlyStopping
from exburn.tuning.records import LaneRecord


class EarlyStops:
    """The rule that ends lanes which have stopped improving.

    Args:
        stopping: The callback, of which each lane has a copy.
        model: The sweep's, whose metrics tell which values are better.

    Attributes:
        logs: What lanes have logged in this epoch, by their numbers.
        kept: Numbers of the lanes whose weights are those of their best epochs.
    """

    def __init__(self, stopping: EarlyStopping, model: Any, monitor: str):
        self._stopping, self._monitor = stopping, monitor
        self._metrics = list(model.metrics)
        self._watches: dict[int, EarlyStopping] = {}
        self.logs: dict[int, dict[str, Any]] = {}
        self.kept: set[int] = set()

    def look(
        self, epoch: int, records: Sequence[LaneRecord]
    ) -> tuple[list[int], list[int]]:
        """Looks at what lanes have logged.

        Returns:
            Lanes whose weights are to be kept, as the best so far; and those that end.
        """
        best, over = [], []
        for number, logs in self.logs.items():
            watch = self._watch(number)
            if records[number].status != "running":
                continue
            before = watch.best_epoch, watch.best
            watch.on_epoch_end(epoch, logs)
            improved = (watch.best_epoch, watch.best) != before
            if self._stopping.restore_best_weights and (
                improved or (number not in self.kept and self._begun(epoch))
            ):
                best.append(number)
            if watch.model.stop_training:
                over.append(number)
        self.logs = {}
        return best, over

    def _begun(self, epoch: int) -> bool:
        return epoch >= self._stopping.start_from_epoch

    def _watch(self, number: int) -> EarlyStopping:
        if number not in self._watches:
            watch = self._watches[number] = copy.copy(self._stopping)
            watch.restore_best_weights = False  # the sweep keeps them
            watch.set_model(SimpleNamespace(stop_training=False, metrics=self._metrics))
            watch.set_params({"validation": True})
            watch.on_train_begin()
        return self._watches[number]

    def score(self, records: Sequence[LaneRecord]) -> None:
        """Gives lanes that keep their best weights the score of these."""
        for number in self.kept:
            logs = self._watches[number].best_logs
            if self._monitor in logs:
                records[number].score = float(logs[self._monitor])
