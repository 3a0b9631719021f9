"""The chunks that lanes train on: the same for all, or rows of each lane's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from exburn.training.feed.array_feed import ArrayFeed
from exburn.training.feed.base import Feed
from exburn.training.feed.chunk import Chunk
from exburn.training.feed.chunking import make_feed
from exburn.training.prepare import Preparer


class LaneFeed:
    """Chunks for lanes: the same for all, or with rows of each lane's own.

    Rows of their own are chosen on the device, where all rows are; a lane has them in
    the order that ``fit`` would have with its seed, on its rows alone.

    Args:
        prepared: The model, prepared for the data.
        dataset: The data.
        batch_size: Rows of a step.
        seeds: Seed of each lane's order.
        rows: Numbers of each lane's rows; ``None`` where all have all rows.
        training: Whether programs of training take the chunks.
        shuffle, steps, earlier: As of ``make_feed``.

    Attributes:
        own_rows: Whether lanes have rows of their own.
        feed: What cuts the data.
    """

    def __init__(
        self,
        prepared: Preparer,
        dataset: Any,
        batch_size: int,
        *,
        seeds: Sequence[int],
        rows: Sequence[np.ndarray] | None = None,
        training: bool,
        shuffle: bool | str = False,
        steps: int | None = None,
        earlier: int = 0,
    ):
        self._seeds, self._rows = list(seeds), rows
        self.own_rows = rows is not None or (bool(shuffle) and len(set(seeds)) > 1)

        def make(data: Any) -> Feed:
            return make_feed(
                prepared,
                data,
                batch_size,
                training=training,
                shuffle=shuffle,
                steps=steps,
                reused=True,
                resident=True if self.own_rows else None,
                earlier=earlier,
                use=None if training else "test",
            )

        self.feed = make(dataset)
        self._drawn: tuple[int, np.ndarray] | None = None
        self._of_size: dict[int, ArrayFeed] = {}  # which know the orders of so many
        if self.own_rows:
            for count in {dataset.size} if rows is None else set(map(len, rows)):
                whole = count == dataset.size
                part: Any = self.feed if whole else make(dataset.rows(0, count))
                self._of_size[count] = part

    def epoch(
        self, epoch: int, phase: int = 0, *, last: bool = True
    ) -> Iterator[Chunk]:
        """The chunks of an epoch.

        Args:
            epoch: Its number.
            phase: Steps of a group of accumulated gradients that were done before it.
            last: Whether none follows.
        """
        if not self.own_rows:
            yield from self.feed.epoch(self._seeds[0], epoch, phase, last=last)
            return
        assert isinstance(self.feed, ArrayFeed)
        drawn, self._drawn = self._drawn, None
        orders = self._draw(epoch) if drawn is None or drawn[0] != epoch else drawn[1]
        data, longest = self.feed.resident_data(), max(self._of_size)
        for chunk in self._of_size[longest].places(phase):
            chunk.data, places = data, chunk.index  # places: [steps, rows]
            chunk.count = self._counts(chunk.count, places)
            chunk.index = orders[:, places].transpose(1, 0, 2)  # [steps, lanes, rows]
            yield chunk
        if not last:  # while the device still works on this epoch
            self._drawn = epoch + 1, self._draw(epoch + 1)

    def close(self) -> None:
        """Drops the data on the device."""
        self.feed.close()

    def _size(self, lane: int) -> int:
        return max(self._of_size) if self._rows is None else len(self._rows[lane])

    def _draw(self, epoch: int) -> np.ndarray:
        """Numbers of the rows of each lane in their order: ``[lanes, rows]``."""
        longest = self._of_size[max(self._of_size)].samples
        out = np.zeros((len(self._seeds), longest), np.int32)
        known: dict[tuple[int, int], np.ndarray] = {}
        for lane, seed in enumerate(self._seeds):
            key = seed, size = seed, self._size(lane)
            if key not in known:
                known[key] = self._of_size[size].order(seed, epoch)
            order = known[key]
            own = order if self._rows is None else self._rows[lane][order]
            out[lane, : len(own)] = own
        return out

    def _counts(self, count: Any, places: np.ndarray) -> Any:
        """Real rows of each lane's steps, and which have any: ``[steps, lanes]``."""
        lanes = len(self._seeds)
        sizes = [self._of_size[self._size(lane)].samples for lane in range(lanes)]
        if len(set(sizes)) == 1:
            if count is None:
                return None
            return tuple(np.repeat(np.asarray(c)[:, None], lanes, 1) for c in count)
        steps, width = places.shape
        full = np.full(steps, width, np.int32) if count is None else count[0]
        left = np.asarray(sizes)[None] - places[:, :1]  # [steps, lanes]
        real = np.clip(left, 0, np.asarray(full)[:, None]).astype(np.int32)
        return real, real > 0
