"""Batches that are made of a model's own samples, when its training comes to them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

import jax

from exburn.data import StreamDataset
from exburn.training.feed.chunk import Chunk
from exburn.training.feed.stream_feed import StreamFeed
from exburn.training.placement import OneDevice
from exburn.training.state_holder import StateHolder


class SampledDataset(StreamDataset):
    """Batches that a function makes while the model shows its latest weights.

    An epoch has rounds. The batches of a round are made together, by the thread that
    trains, once all steps before it are done; one call of the program trains on them.

    Args:
        sample: ``sample(seed, epoch, number)`` makes the batches of a round, each
            array ``[steps, rows, …]``. It may use the model as a hook may.
        like: A batch of their usual form, for shapes.
        rounds: Rounds of an epoch.
        steps: Steps of a round.
        rows: Rows of a batch.
        settings: What the samples depend on, by name: what a run that is taken up
            compares.
    """

    def __init__(
        self,
        sample: Callable[[int, int, int], tuple],
        like: tuple,
        *,
        rounds: int,
        steps: int,
        rows: int,
        settings: Mapping[str, Any],
        op: str,
    ):
        super().__init__(
            lambda epoch, seed: iter([like]),
            batches=rounds * steps,
            batch_size=rows,
            shuffles=True,
            name="set of prompts",
            op=op,
        )
        self.sample, self.like, self.steps = sample, like, steps
        self.settings = settings

    def peek(self, seed: int | None = None) -> tuple:
        """A batch of the usual form: nothing is sampled for it."""
        return self.like


class SampledFeed(StreamFeed):
    """Chunks of a `SampledDataset`, each of them one round.

    Args:
        steps: Steps of an epoch, if not all; whole rounds are made.
        holder: Shows the weights to what samples.
    """

    dataset: SampledDataset
    steps: int

    def __init__(
        self,
        dataset: SampledDataset,
        holder: StateHolder,
        *,
        steps: int | None,
        placement: OneDevice,
    ):
        super().__init__(dataset, dataset.steps, fixed=True, placement=placement)
        self._holder = holder
        rounds = max((steps or self.steps) // dataset.steps, 1)
        self.steps = rounds * dataset.steps
        self.length = self.longest = dataset.steps
        self.reason = "they are sampled as the training goes on"

    def epoch(
        self,
        seed: int,
        epoch: int,
        phase: int = 0,
        start: int = 0,
        *,
        last: bool = True,
    ) -> Generator[Chunk, None, None]:
        """The epoch's chunks, but for the first ``start`` steps: whole rounds."""
        dataset, steps = self.dataset, self.dataset.steps
        for number in range(start // steps, self.steps // steps):
            with self._holder.lending():
                batches = dataset.sample(seed, dataset.earlier + epoch, number)
            samples = jax.tree.leaves(batches)[0].shape[1] * steps
            yield Chunk(self._placement.send(batches), None, None, steps, samples)
