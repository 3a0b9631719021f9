"""Warnings about the loss of a training, each said once a ``fit``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from exburn.errors import ConstantLossWarning, NonFiniteLossWarning, warn

_ALIKE = 3  # epochs whose losses are the same before it is said
_SOLVED = 0.01  # of the first loss: below it, nothing may be left to learn


class LossWatch:
    """Warns of a loss that is not finite, and of one that does not move at all.

    It looks at what is read for other ends, so that it costs no transfer.

    Example:
        >>> import warnings
        >>> watch = LossWatch(trains=True)
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     watch.look({"loss": math.nan}, epoch=1, batches=320)
        ...     watch.look({"loss": math.nan}, epoch=2, batches=640)
        >>> len(caught), str(caught[0].message).partition("\\n")[0]
        (1, 'the loss is nan in epoch 2, by its batch 320 or before')
    """

    def __init__(self, trains: bool, nan: bool = True):
        self._warns_of_nan, self._warns_of_constant = nan, trains
        self._before: list[float] = []
        self._first: float | None = None

    def look(self, logs: Mapping[str, Any], epoch: int, batches: int) -> None:
        """Warns if the loss is not finite."""
        for name in ("loss", "val_loss"):
            value = logs.get(name)
            if not self._warns_of_nan or not isinstance(value, float | int):
                continue
            if not math.isfinite(value):
                self._warns_of_nan = False
                first = f", by its batch {batches} or before"
                warn(
                    f"the {name} is {value} in epoch {epoch + 1}"
                    f"{first if name == 'loss' else ''}\n"
                    "  → Lower the learning rate, clip gradients (clipnorm=1.0), look "
                    "for NaN in the data; check_numerics=True in compile names the "
                    "layer, callbacks.TerminateOnNaN() ends the training.",
                    NonFiniteLossWarning,
                )

    def end_epoch(self, logs: Mapping[str, Any], epoch: int, batches: int) -> None:
        """Warns of the loss of a whole epoch, whose arguments are those of ``look``."""
        self.look(logs, epoch, batches)
        loss = logs.get("loss")
        if not isinstance(loss, float | int) or not loss or not math.isfinite(loss):
            self._before.clear()
            return
        self._first = loss if self._first is None else self._first
        self._before = [*self._before[1 - _ALIKE :], loss]
        same = len(self._before) == _ALIKE and len({*self._before}) == 1
        solved = abs(loss) < _SOLVED * abs(self._first)
        if same and not solved and self._warns_of_constant:
            self._warns_of_constant = False
            warn(
                f"the loss is {loss!r} in {_ALIKE} epochs, the same to the last digit: "
                "nothing is learnt any more\n"
                "  → Look for units that are all off (a ReLU whose inputs are negative "
                "for every row), columns of unlike scale (layers.Normalization), a "
                "learning rate of 0.",
                ConstantLossWarning,
            )
