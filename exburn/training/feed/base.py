"""From any data set to chunks of batches on the device."""

from __future__ import annotations

from typing import Any

from exburn.data import StreamDataset
from exburn.training.feed.array_feed import ArrayFeed
from exburn.training.feed.stream_feed import StreamFeed

Feed = ArrayFeed | StreamFeed


def count_steps(dataset: Any, batch_size: int, steps: int | None) -> int | None:
    """Steps of one epoch, as far as they are known before it runs."""
    if steps is not None:
        return steps
    if isinstance(dataset, StreamDataset):
        return dataset.batches
    return -(-dataset.size // batch_size)
