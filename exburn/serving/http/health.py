"""The health of models: a canary goes through every partition, again and again.

A server that only says that its models are loaded says so while a device hangs and no
request is ever answered. So each partition is asked to run a batch of zeros, and the
server is ready as long as every one of them lately has.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from typing import Any

from exburn.errors import ServingClosedError
from exburn.serving.http.registry import Entry, Registry
from exburn.serving.server import Serving


class Health:
    """Sends canaries, and says what came of them.

    Args:
        within: Seconds within which a canary must have come back.

    Attributes:
        draining: Whether the server is about to end: then it is not ready.
    """

    def __init__(self, registry: Registry, within: float):
        self._registry, self._within = registry, within
        self._canaries: weakref.WeakKeyDictionary[Entry, _Canaries]
        self._canaries = weakref.WeakKeyDictionary()
        self._task: asyncio.Task[None] | None = None
        self.draining = False

    def start(self) -> None:
        """Begins to send canaries, in the running event loop."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Sends no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            for entry in self._registry:
                if entry.serving is not None:
                    self._of(entry, entry.serving).send()
            await asyncio.sleep(self._within / 4)

    def _of(self, entry: Entry, serving: Serving) -> _Canaries:
        if entry not in self._canaries:
            self._canaries[entry] = _Canaries(serving)
        return self._canaries[entry]

    def is_ready(self, entry: Entry) -> bool:
        """Tells whether a model's canaries came back lately. A generator has none."""
        parts = (entry.serving, entry.text)
        closed = any(part is not None and part.closed for part in parts)
        return not self.draining and not closed and self.age(entry) <= self._within

    def age(self, entry: Entry) -> float:
        """Seconds since the oldest of the partitions' last canaries came back.

        The start counts as one: every program was run then.
        """
        if entry.serving is None:
            return 0.0
        return time.monotonic() - min(self._of(entry, entry.serving).last)

    def all_ready(self) -> bool:
        """Tells whether the server is ready: has a model, and each of them answers.

        Without a model every request would be answered by 404.
        """
        entries = list(self._registry)
        return not self.draining and bool(entries) and all(map(self.is_ready, entries))

    def is_live(self) -> bool:
        """Tells whether the process should go on: no model's threads are gone."""
        if self.draining:
            return True
        servings = [e.serving for e in self._registry if e.serving is not None]
        return all(serving.status()["state"] != "closed" for serving in servings)


class _Canaries:
    """The canaries of one model: one under way at most for each partition."""

    def __init__(self, serving: Serving):
        self._serving = serving
        self._under_way: list[Any] = []
        self.last = [time.monotonic()] * len(serving.status()["devices"])

    def send(self) -> None:
        if any(not probe.done() for probe in self._under_way):
            return  # one that does not come back is not helped by others
        try:
            self._under_way = self._serving.send_probes()
        except ServingClosedError:
            return
        for index, probe in enumerate(self._under_way):
            probe.add_done_callback(lambda probe, index=index: self._back(index, probe))

    def _back(self, index: int, probe: Any) -> None:
        if not probe.cancelled() and probe.exception() is None:
            self.last[index] = time.monotonic()
