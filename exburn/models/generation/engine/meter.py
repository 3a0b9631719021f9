"""What an engine has done: counted on its thread, read on any."""

from __future__ import annotations

import dataclasses
from collections import Counter, deque

import numpy as np

Quantiles = tuple[float, float, float]
_REASONS = ("stop", "length", "cancelled", "deadline", "error")


@dataclasses.dataclass(frozen=True)
class EngineStatistics:
    """What an engine does now, and what it has done.

    Attributes:
        slots, active: Texts that it writes at once at most, and now.
        queue: Texts that wait for a slot.
        pages, pages_free: Pages of the cache, and those that no text reads, of which
            ``pages_kept`` are kept for texts that begin alike.
        pages_shared: Pages that several texts read now.
        page_bytes: Bytes of a page.
        submitted: Texts so far.
        ended: How many of them ended for which reason.
        prompt_tokens, shared_tokens: Tokens of prompts; those that other texts' pages
            had, and were not computed.
        tokens: Tokens written.
        preempted: How often a text's pages were taken from it.
        first_token: Seconds from ``submit`` to the first token, of the last texts: the
            median, and those that 90 and 99 of 100 need at most; ``None`` if none.
        between_tokens: Seconds between two tokens of a text, likewise.
        failures, failure: How often the engine itself failed, and the last error.

    Example:
        >>> from exburn.applications import GPT2
        >>> from exburn.models.generation.engine import TextEngine
        >>> model = GPT2(vocabulary_size=9, layers=1, width=8, heads=2, positions=32)
        >>> with TextEngine(model, slots=2, cache="16 KB") as engine:
        ...     numbers = engine.statistics()
        >>> numbers.pages, numbers.page_bytes, numbers.queue
        (15, 1024, 0)
    """

    slots: int
    active: int
    queue: int
    pages: int
    pages_free: int
    pages_kept: int
    pages_shared: int
    page_bytes: int
    submitted: int
    ended: dict[str, int]
    prompt_tokens: int
    shared_tokens: int
    tokens: int
    preempted: int
    first_token: Quantiles | None
    between_tokens: Quantiles | None
    failures: int
    failure: BaseException | None


class Meter:
    """Counts and times of an engine, the last ones of these."""

    def __init__(self):
        self.counts: Counter[str] = Counter()
        self.first, self.between = deque(maxlen=1024), deque(maxlen=4096)
        self.failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """Counts a failure of the engine itself."""
        self.counts["failures"] += 1
        self.failure = error

    def read(self, **now: int) -> EngineStatistics:
        """All numbers, with those of the moment."""
        counts = self.counts.copy()
        return EngineStatistics(
            **now,
            submitted=counts["submitted"],
            ended={reason: counts[reason] for reason in _REASONS},
            prompt_tokens=counts["prompt_tokens"],
            shared_tokens=counts["shared_tokens"],
            tokens=counts["tokens"],
            preempted=counts["preempted"],
            first_token=_quantiles(self.first),
            between_tokens=_quantiles(self.between),
            failures=counts["failures"],
            failure=self.failure,
        )


def _quantiles(times: deque[float]) -> Quantiles | None:
    values = times.copy()
    if not values:
        return None
    first, second, third = np.quantile(values, [0.5, 0.9, 0.99]).tolist()
    return first, second, third
