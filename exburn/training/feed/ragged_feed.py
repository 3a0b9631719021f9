"""Chunks of batches from rows of unlike lengths, each of rows of one bucket."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from exburn.core.random_keys import path_hash
from exburn.data import RaggedDataset
from exburn.training.feed.array_feed import ArrayFeed
from exburn.training.feed.chunk import Chunk
from exburn.training.placement import OneDevice

_RUN = 8  # batches of a bucket that follow each other in training, at most


@dataclasses.dataclass
class Bucket:
    """Some rows, filled up to the widths of their bucket.

    Attributes:
        rows: Their numbers in the data set.
        widths: Of each axis of time.
        feed: Their batches.
    """

    rows: np.ndarray
    widths: tuple[int, ...]
    feed: ArrayFeed

    @functools.cached_property
    def runs(self) -> list[int]:
        """Steps of each chunk of a pass."""
        return [chunk.steps for chunk in self.feed.places()]


class RaggedFeed:
    """Chunks of rows of unlike lengths.

    The rows lie in a few buckets, chosen by their lengths; those of a batch are of one
    bucket. In training the rows are shuffled within a bucket, and the chunks of all
    buckets among each other, both by seed and epoch. Without shuffling the chunks come
    in the order of their first rows.

    Args:
        most_steps: Length of a chunk, at most.
        steps: Steps of an epoch, if fewer than there are: the next epoch goes on where
            it stopped.
        earlier, first: As for ``ArrayFeed``.
        in_order: Whether the buckets come one after the other instead.
        options: Of the feeds of the buckets.
    """

    ended = None  # arrays always give an epoch's batches
    group = joined = 1
    own_data = False

    def __init__(
        self,
        dataset: RaggedDataset,
        batch_size: int,
        most_steps: int,
        *,
        shuffle: bool | str = False,
        steps: int | None = None,
        earlier: int = 0,
        first: int = 0,
        in_order: bool = False,
        reason: str = "",
        placement: OneDevice | None = None,
        **options: Any,
    ):
        self.dataset, self.shuffle, self.reason = dataset, shuffle, reason
        self.batch_size, self.size = batch_size, dataset.size
        self.resident = options.get("resident", False)
        self._passed = earlier if shuffle else -first
        self._in_order = in_order
        # An epoch that ends within a chunk would cut it, and so change its rounding.
        most = 1 if steps is not None else most_steps
        self.buckets = [
            Bucket(
                rows,
                widths,
                ArrayFeed(
                    dataset.fill(rows, widths),
                    batch_size,
                    most if in_order else min(most, _RUN),
                    shuffle=shuffle,
                    placement=placement,
                    fixed=True,
                    **options,
                ),
            )
            for rows, widths in dataset.buckets(batch_size)
        ]
        feeds = [bucket.feed for bucket in self.buckets]
        self._whole = sum(feed.steps for feed in feeds)
        self.steps = self._whole if steps is None else min(steps, self._whole)
        self.length = max(feed.length for feed in feeds)
        self.samples = self.size
        self.waiting: Callable[[], None] = lambda: None

    @property
    def facts(self) -> dict[str, Any]:
        """What the batches of an epoch depend on, besides seed and epoch."""
        names = ("size", "batch_size", "steps", "shuffle")
        facts = {name: getattr(self, name) for name in names}
        facts["widths"] = [list(bucket.widths) for bucket in self.buckets]
        facts["length"] = self.length
        if not self.shuffle and self._passed:
            facts["first"] = -self._passed
        return facts

    def position(self, *, begin: bool) -> None:
        """Every epoch begins anew: there is no position to note."""

    def epoch(
        self,
        seed: int,
        epoch: int,
        phase: int = 0,
        start: int = 0,
        *,
        last: bool = True,
    ) -> Generator[Chunk, None, None]:
        """The epoch's chunks, but for the first ``start`` steps."""
        number, at = divmod((epoch + self._passed) * self.steps + start, self._whole)
        left = self.steps - start
        while left > 0:
            for chunk in self._pass(seed, number, at, last):
                if left <= 0:
                    return
                left -= chunk.steps
                yield chunk
            number, at = number + 1, 0

    def pop_wait(self) -> float:
        """Seconds spent before the first epoch: none, the arrays are there."""
        return 0.0

    def close(self) -> None:
        """Ends all threads, and what was made ahead."""
        for bucket in self.buckets:
            bucket.feed.close()

    def _pass(self, seed: int, number: int, start: int, last: bool) -> Iterator[Chunk]:
        """The chunks of one pass through all rows, from a step on."""
        begins = [0] * len(self.buckets)
        order = []
        for bucket, steps in self._order(seed, number):
            done = min(max(start, 0), steps)
            start -= steps
            begins[bucket] += done
            if done < steps:
                order.append(bucket)
        passes: dict[int, Generator[Chunk, None, None]] = {}
        try:
            for bucket in order:
                feed = self.buckets[bucket].feed
                if bucket not in passes:
                    feed.waiting = self._wait
                    place = seed, number, 0, begins[bucket]
                    passes[bucket] = feed.epoch(*place, last=last or self._in_order)
                chunk = next(passes[bucket])
                chunk.bucket = bucket
                yield chunk
            for ended in passes.values():  # which make the next pass ready
                next(ended, None)
        finally:
            for ended in passes.values():
                ended.close()

    def _wait(self) -> None:
        self.waiting()

    def _order(self, seed: int, number: int) -> list[tuple[int, int]]:
        """The bucket of each chunk of a pass, and its steps, in their order."""
        runs, places = [], []
        for index, bucket in enumerate(self.buckets):
            feed = bucket.feed
            first = 0
            for steps in bucket.runs:
                runs.append((index, steps))
                places.append(bucket.rows[first * feed.batch_size])
                first += steps
        if self._in_order:
            return runs
        order = np.argsort(places, kind="stable")
        if self.shuffle:
            key = [seed, path_hash("buckets", number)]
            order = np.random.Generator(np.random.Philox(key=key)).permutation(
                len(runs)
            )
        # A bucket gives its chunks one after the other: the shorter one comes last.
        steps = [iter([n for i, n in runs if i == b]) for b in range(len(self.buckets))]
        return [(runs[at][0], next(steps[runs[at][0]])) for at in order]


def count_ragged_steps(dataset: RaggedDataset, batch_size: int) -> int:
    """Steps of an epoch of all rows."""
    buckets = dataset.buckets(batch_size)
    return sum(math.ceil(len(rows) / batch_size) for rows, _ in buckets)
