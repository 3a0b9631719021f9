"""Keras-style `PyDataset`: batches by index, made ahead by threads or processes."""

from __future__ import annotations

import itertools
import pickle
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np

from exburn.data import PyDataset, StreamDataset, register_adapter
from exburn.datasets.adapters.workers import Processes
from exburn.errors import DataError
from exburn.runtime.threads import Threads, ahead


@register_adapter
class PyDatasetAdapter:
    """`exburn.data.PyDataset`, and Keras' own class of that name.

    With a seed the order of the batches is permuted every epoch (``fit`` shuffles
    batches, as Keras does); ``on_epoch_begin`` and ``on_epoch_end`` run in the thread
    that reads the batches.
    """

    def accepts(self, value: Any) -> bool:
        if isinstance(value, PyDataset):
            return True
        return any(
            c.__name__ == "PyDataset" and c.__module__.startswith("keras.")
            for c in type(value).__mro__
        )

    def load(self, value: Any) -> StreamDataset:
        total = _batches(value)
        pools: list[Processes] = []  # kept from one epoch to the next
        fetch = _fetcher(value, pools)

        def start(epoch: int, seed: int | None) -> Iterator:
            value.on_epoch_begin()
            total, count = _batches(value), 0  # the hooks may change their number
            order: Iterable[int] = itertools.count() if total is None else range(total)
            if total is not None and seed is not None:
                rng = np.random.default_rng((seed, epoch))
                order = rng.permutation(total).tolist()
            try:
                for batch in fetch(order):
                    count += 1
                    yield batch
            finally:  # also when the reader stops right after the last batch
                if count == total:
                    value.on_epoch_end()

        name = type(value).__name__
        stream = StreamDataset(
            start,
            batches=sys.maxsize if total is None else total,
            shuffles=True,
            release=lambda: _end(pools),
            name=name,
        )
        weakref.finalize(stream, _end, pools)
        return stream


def _batches(value: Any) -> int | None:
    if hasattr(type(value), "__len__") and not isinstance(value, PyDataset):
        return len(value)
    try:
        return value.num_batches
    except NotImplementedError:  # Keras' own class, where nothing tells
        return None


def _end(pools: list[Processes]) -> None:
    while pools:
        pools.pop().close()


def _fetcher(
    dataset: Any, pools: list[Processes]
) -> Callable[[Iterable[int]], Iterator]:
    """A function from an order of indices to their batches, in that order."""
    if dataset.use_multiprocessing:
        return _processes(dataset, pools)
    if dataset.workers <= 1:
        return lambda order: (dataset[index] for index in order)

    def threads(order: Iterable[int]) -> Iterator:
        pool = Threads(dataset.workers, "exburn-batch")
        try:
            yield from ahead(pool, dataset.__getitem__, order, dataset.max_queue_size)
        finally:
            pool.shutdown(cancel_futures=True)

    return threads


def _processes(
    dataset: Any, pools: list[Processes]
) -> Callable[[Iterable[int]], Iterator]:
    name = type(dataset).__name__

    def pickle_dataset() -> bytes:
        try:
            return pickle.dumps(dataset)
        except Exception as error:
            raise DataError(
                name,
                "use_multiprocessing=True needs a data set that pickle can copy",
                {"cause": error},
                hint="Open files in __getitem__, or use threads "
                "(use_multiprocessing=False).",
            ) from error

    def pool_with(content: bytes) -> Processes:
        """Processes that have the data set as hooks and callbacks have left it."""
        if not pools or pools[0].content != content:
            _end(pools)
            pools.append(Processes(content, max(1, dataset.workers)))
        return pools[0]

    def fetch(order: Iterable[int]) -> Iterator:
        pool = pool_with(pickle_dataset())
        try:
            yield from pool.batches(order, dataset.max_queue_size)
        except BrokenProcessPool as error:
            _end(pools)
            raise DataError(
                name,
                "a worker process died before it gave its batch",
                {"cause": error},
                hint="Define the class in an importable file, and start training under "
                "if __name__ == '__main__': (workers are spawned, not forked).",
            ) from error

    return fetch
