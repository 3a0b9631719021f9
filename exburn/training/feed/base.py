"""From any data set to chunks of batches on the device."""

from __future__ import annotations

from typing import Any

from exburn.data import RaggedDataset, StreamDataset
from exburn.training.feed.array_feed import ArrayFeed
from exburn.training.feed.ragged_feed import RaggedFeed, count_ragged_steps
from exburn.training.feed.stream_feed import StreamFeed

Feed = ArrayFeed | RaggedFeed | StreamFeed


def count_steps(dataset: Any, batch_size: int, steps: int | None) -> int | None:
    """Steps of one epoch, as far as they are known before it runs."""
    if steps is not None:
        return steps
    if isinstance(dataset, StreamDataset):
        return dataset.batches
    if isinstance(dataset, RaggedDataset):
        return count_ragged_steps(dataset, batch_size)
    return -(-dataset.size // batch_size)
