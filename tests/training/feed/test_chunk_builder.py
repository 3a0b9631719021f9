"""Chunks in the making, and their memory."""

import threading

import numpy as np
import pytest

from exburn.data import StreamDataset
from exburn.training.feed.base import StreamFeed

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


def test_leftover_steps_are_copied_before_their_memory_is_given_back():
    """Groups of two in chunks of four: the eleventh batch is left over, as a part."""
    batches = [np.full((2, 3), i, np.float32) for i in range(11)]
    stream = StreamDataset(lambda epoch: ((b, b * 2) for b in batches), batches=11)
    feed = StreamFeed(stream, 4, group=2)
    found = []
    for made, steps in feed._fillings(0, 0, threading.Event()):
        x, y = made.leaves(0)[:2]
        found += [made.leaves(step)[0][0, 0].item() for step in range(steps)]
        for memory in made.memory:  # the consumer's: it was sent, and is used again
            memory[:] = -1
    assert found == list(range(11))
