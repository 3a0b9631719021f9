"""A progress bar of what may be over before anybody waits."""

from __future__ import annotations

import time

from exburn.utils.progress import Progbar

_SILENT = 2.0  # seconds before it appears


class PatientBar:
    """A progress bar that appears after two seconds.

    Args:
        total: How many there are, or ``None``.
        noun: Of what.
    """

    def __init__(self, total: int | None, noun: str):
        self._bar, self._begun = Progbar(total, unit_name=noun), time.monotonic()

    def update(self, count: int) -> None:
        """Says that so many are done."""
        if time.monotonic() - self._begun > _SILENT:
            self._bar.update(count)
