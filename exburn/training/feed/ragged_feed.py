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
from exburn.training.feed.array_feed import ArrayFeed, order_facts
from exburn.training.feed.chunk import Chunk
from exburn.training.placement import OneDevice

# Batches of a bucket that follow each other in training, at most, and how many such
# runs an epoch has at least. The order depends on them, so not on the chunks' length.
_RUN, _FEWEST_RUNS = 8, 16


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
    def chunks(self) -> list[int]:
        """Steps of each chunk of a pass."""
        return [chunk.steps for chunk in self.feed.places()]

    def runs(self, most: int) -> list[tuple[list[int], int]]:
        """The chunks of each run of batches, by their steps, and its first row."""
        runs: list[tuple[list[int], int]] = []
        done = 0
        for steps in self.chunks:
            if done % most == 0:
                first = done * self.feed.batch_size
                runs.append(([], int(self.rows[first])))
            runs[-1][0].append(steps)
            done += steps
        return runs


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
    on_trial = is_proven = False  # see ArrayFeed
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
        whole = count_ragged_steps(dataset, batch_size)
        self._run = min(_RUN, _power_below(max(whole // _FEWEST_RUNS, 1)))
        if not in_order:
            most = min(self._run, _power_below(most))
        self.buckets = [
            Bucket(
                rows,
                widths,
                ArrayFeed(
                    dataset.fill(rows, widths),
                    batch_size,
                    most,
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
        widths = [list(bucket.widths) for bucket in self.buckets]
        return {**order_facts(self, self._passed), "widths": widths}

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
        if self._in_order:
            pairs = enumerate(self.buckets)
            return [(at, steps) for at, bucket in pairs for steps in bucket.chunks]
        runs = [bucket.runs(self._run) for bucket in self.buckets]
        buckets = np.repeat(np.arange(len(runs)), [len(one) for one in runs])
        places = np.array([first for one in runs for _, first in one])
        order = np.argsort(places, kind="stable")
        if self.shuffle:
            key = [seed, path_hash("buckets", number)]
            rng = np.random.Generator(np.random.Philox(key=key))
            order = rng.permutation(len(places))
        # A bucket gives its runs one after the other: the shorter one comes last.
        left = [iter(one) for one in runs]
        return [
            (bucket, steps)
            for bucket in buckets[order].tolist()
            for steps in next(left[bucket])[0]
        ]


def _power_below(number: int) -> int:
    """The largest power of two that is not larger."""
    return 1 << (number.bit_length() - 1)


def count_ragged_steps(dataset: RaggedDataset, batch_size: int) -> int:
    """Steps of an epoch of all rows."""
    buckets = dataset.buckets(batch_size)
    return sum(math.ceil(len(rows) / batch_size) for rows, _ in buckets)
