"""The chunks that lanes train on: the same for all, or rows of each lane's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from exburn.training.feed.array_feed import ArrayFeed
from exburn.training.feed.base import Feed
from exburn.training.feed.chunk import Chunk


class LaneFeed:
    """Chunks for lanes: the same for all, or with rows of each lane's own.

    Rows of their own are chosen on the device, where all rows are; a lane has them in
    the order that ``fit`` would have with its seed, on its rows alone.

    Args:
        make: Makes what cuts the data of so many first rows, ``None`` for all of them;
            it is asked whether these are to be on the device.
        rows: Numbers of each lane's rows; ``None`` where all have all rows.
        shuffle: Whether lanes of other seeds have other orders.
        send: Sends what lanes have of their own, ``[steps, lanes, …]``.
    """

    def __init__(
        self,
        make: Callable[[int | None, bool], Feed],
        seeds: Sequence[int],
        rows: Sequence[np.ndarray] | None = None,
        *,
        shuffle: bool | str = False,
        send: Callable[[Any], Any] = lambda rows: rows,
    ):
        self._seeds, self._rows, self._send = list(seeds), rows, send
        self.own_rows = rows is not None or (bool(shuffle) and len(set(seeds)) > 1)
        self.feed = make(None, self.own_rows)
        self._drawn: tuple[int, Future[np.ndarray]] | None = None
        self._of_size: dict[int, ArrayFeed] = {}  # which know the orders of so many
        if self.own_rows:
            for count in {None} if rows is None else set(map(len, rows)):
                feed: Any = make(count, True)
                self._of_size[feed.size] = feed

    def epoch(
        self, epoch: int, phase: int = 0, start: int = 0, *, last: bool = True
    ) -> Generator[Chunk, None, None]:
        """The chunks of an epoch.

        Args:
            phase: Steps of a group of accumulated gradients that were done before it.
            start: Steps of the epoch to leave out: they are done.
        """
        if not self.own_rows:
            yield from self.feed.epoch(self._seeds[0], epoch, phase, start, last=last)
            return
        assert isinstance(self.feed, ArrayFeed)
        drawn, self._drawn = self._drawn, None
        ahead = drawn is not None and drawn[0] == epoch
        orders = drawn[1].result() if ahead and drawn else self._draw(epoch)
        if not last:  # while the device works on this epoch
            self._drawn = epoch + 1, _begin(lambda: self._draw(epoch + 1))
        data, longest = self.feed.resident_data(), max(self._of_size)
        for chunk in self._of_size[longest].places(phase, start):
            chunk.data, places = data, chunk.index  # places: [steps, rows]
            chunk.count = self._counts(chunk.count, places)
            chunk.index = _rows_at(orders, places)
            chunk.index, chunk.count = self._send((chunk.index, chunk.count))
            yield chunk

    def _size(self, lane: int) -> int:
        return max(self._of_size) if self._rows is None else len(self._rows[lane])

    def _draw(self, epoch: int) -> np.ndarray:
        """Numbers of the rows of each lane in their order: ``[lanes, rows]``."""
        longest = self._of_size[max(self._of_size)].samples
        out = np.zeros((len(self._seeds), longest), np.int32)
        keys = [(seed, self._size(lane)) for lane, seed in enumerate(self._seeds)]
        distinct = list(dict.fromkeys(keys))
        with ThreadPoolExecutor(os.cpu_count()) as threads:  # NumPy lets them run
            drawn = threads.map(
                lambda key: self._of_size[key[1]].order(key[0], epoch), distinct
            )
            orders = dict(zip(distinct, drawn, strict=True))
        for lane, key in enumerate(keys):
            order = orders[key]
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


def _rows_at(orders: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Numbers of the rows at some places of each lane's order.

    Args:
        orders: [lanes, places]
        places: [steps, rows]

    Returns:
        [steps, lanes, rows]
    """
    first, last = places.flat[0], places.flat[-1]
    if last - first == places.size - 1:  # without padding they follow one another
        chosen = orders[:, first : last + 1].reshape(len(orders), *places.shape)
    else:
        chosen = orders[:, places]
    return np.ascontiguousarray(chosen.transpose(1, 0, 2))


def _begin(call: Callable[[], np.ndarray]) -> Future[np.ndarray]:
    """Begins to call a function, in a thread of its own."""
    threads = ThreadPoolExecutor(1, "exburn-orders")
    begun = threads.submit(call)
    threads.shutdown(wait=False)
    return begun
