"""Chunks of batches in which each row is with the same probability, by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from exburn.core.random_keys import path_hash
from exburn.data import ArrayDataset
from exburn.errors import DataError
from exburn.training.feed.array_feed import ArrayFeed
from exburn.training.feed.chunk import Chunk

_TOO_MANY = 1e-15  # probability that a batch has more rows than there is room for


def capacity_of(rows: int, batch_size: int) -> int:
    """Rows that there is room for in a batch, which has ``batch_size`` on average.

    Example:
        >>> capacity_of(60_000, 256), capacity_of(10, 10)
        (393, 10)
    """
    # All trainings import this module, and few draw rows: SciPy's statistics take long.
    from scipy.stats import binom

    room = int(binom.isf(_TOO_MANY, rows, batch_size / rows))
    return min(max(room, batch_size), rows)


class PoissonFeed(ArrayFeed):
    """Chunks from arrays whose steps draw each row by itself: Poisson sampling.

    A row may be in several batches of an epoch, or in none. That is what accountants
    of privacy assume.

    Args:
        batch_size: Rows of a batch on average.
        steps: Steps of an epoch.
        **options: As of ``ArrayFeed``.
    """

    draws = True

    def __init__(
        self,
        dataset: ArrayDataset,
        batch_size: int,
        most_steps: int,
        *,
        steps: int,
        **options: Any,
    ):
        self._rate = batch_size / dataset.size
        capacity = capacity_of(dataset.size, batch_size)
        super().__init__(
            dataset, capacity, most_steps, shuffle=True, steps=steps, **options
        )
        self.samples = min(steps * batch_size, self.size)
        self.counted = self.padded = True

    def _order(self, seed: int, epoch: int) -> np.ndarray:
        """Numbers of the rows of each step, filled up with -1."""
        key = [seed, path_hash("poisson", epoch + self._passed)]
        rng = np.random.Generator(np.random.Philox(key=key))
        order = np.full((self.steps, self.batch_size), -1, np.int32)
        for step in order:
            # As if each row were drawn by itself: so many, and any of them alike.
            count = rng.binomial(self.size, self._rate)
            if count > self.batch_size:
                raise DataError(
                    "fit",
                    f"a batch was drawn with {count} rows, and there is room for "
                    f"{self.batch_size}: to leave rows out would not be private",
                    hint="This has a chance of 1e-15. Train with another seed.",
                )
            step[:count] = rng.choice(self.size, count, replace=False, shuffle=False)
        return order.reshape(-1)

    def _blocks(self, rows: np.ndarray, phase: int, begin: int) -> Iterator[Chunk]:
        b = self.batch_size
        for start, steps, k, _ in self._pieces(phase, begin):
            part = rows[start * b : (start + steps) * b]
            block = np.full((k, self._width), -1, np.int32)  # as wide as devices need
            block[:steps, :b] = part.reshape(steps, b)
            count = np.sum(block >= 0, axis=1, dtype=np.int32)
            active = np.arange(k) < steps  # a step that drew no row is one, too
            block = np.maximum(block, 0)
            rows_of_steps = list(map(int, np.atleast_1d(count)))
            samples = sum(rows_of_steps)
            yield Chunk(
                None, block, (count, active), steps, samples, rows=rows_of_steps
            )
