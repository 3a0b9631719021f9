"""Where the time of each epoch went, seen from the host."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

_PARTS = ("data", "device", "validation")
# Seconds of an epoch that may go into waiting for data unnoticed: the first chunk of a
# short epoch comes from nowhere.
_UNNOTICED = 0.05


class Timing:
    """Milliseconds of every epoch: waiting for data, for the device, and the rest.

    The device works while the host prepares, so ``device_ms`` is what the host had to
    wait for it, not its computing time; ``host_ms`` holds dispatch and callbacks.

    Attributes:
        epochs: A dictionary for each finished epoch: ``data_ms``, ``device_ms``,
            ``host_ms``, ``validation_ms``, ``total_ms``.
        waits: Share of each finished epoch that was spent waiting for data.
    """

    def __init__(self, waited: float = 0.0):
        self.epochs: list[dict[str, float]] = []
        self.waits: list[float] = []
        self.begin(waited)

    def begin(self, waited: float = 0.0) -> None:
        """An epoch begins.

        Args:
            waited: Seconds that were spent before, waiting for its first batches.
        """
        self._spent: dict[str, float] = {part: 0.0 for part in _PARTS}
        self._spent["data"] = waited
        self._validation_data = 0.0  # seconds that a validation waited for its own
        self._start = time.perf_counter() - waited
        self._since: float | None = None  # when the wait at hand began

    def end(self) -> None:
        """The epoch ends."""
        total = time.perf_counter() - self._start
        self.waits.append(self.data_wait)
        times = {**self._spent, "host": total - sum(self._spent.values())}
        self.epochs.append(
            {f"{name}_ms": 1e3 * value for name, value in times.items()}
            | {"total_ms": 1e3 * total}
        )

    @property
    def data_wait(self) -> float:
        """Share of the epoch so far that was spent waiting for data."""
        now = time.perf_counter()
        waited = self._spent["data"] + self._validation_data
        if self._since is not None:
            waited += now - self._since
        return 0.0 if waited < _UNNOTICED else waited / (now - self._start)

    def tell_wait(self, callbacks: Iterable[Any]) -> None:
        """Sets ``data_wait`` of the callbacks that have it: the progress bar's."""
        for callback in callbacks:
            if hasattr(callback, "data_wait"):
                callback.data_wait = self.data_wait

    def add_validation(self, validation: Timing) -> None:
        """Adds what a validation within the epoch waited for its data."""
        self._validation_data += validation._spent["data"]

    @contextlib.contextmanager
    def on(self, part: str) -> Generator[None]:
        """Counts the block as time spent on a part."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._spent[part] += time.perf_counter() - start

    def data(
        self, chunks: Iterator[Any], busy: Callable[[], bool] = lambda: False
    ) -> Iterator[Any]:
        """The same chunks; waiting for each of them counts as data.

        Args:
            busy: Whether the device still works when one comes: then the host alone
                has waited, and the time counts as the device's.
        """
        while True:
            self._since = start = time.perf_counter()
            chunk = next(chunks, None)
            self._since = None
            part = "device" if busy() else "data"
            self._spent[part] += time.perf_counter() - start
            if chunk is None:
                return
            yield chunk
