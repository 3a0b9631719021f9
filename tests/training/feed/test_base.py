"""Steps of one epoch, as far as they are known before it runs."""

import numpy as np
import pytest

from exburn.data import ArrayDataset, StreamDataset
from exburn.training.feed.base import count_steps


@pytest.mark.parametrize(
    ("batch_size", "steps", "wanted"),
    [(4, None, 3), (5, None, 2), (32, None, 1), (4, 7, 7)],
)
def test_steps_of_arrays(batch_size, steps, wanted):
    assert count_steps(ArrayDataset(np.ones((10, 2))), batch_size, steps) == wanted


def test_steps_of_streams():
    for known in (None, 5):
        stream = StreamDataset(lambda epoch: iter([]), batches=known)
        assert count_steps(stream, 32, None) == known
        assert count_steps(stream, 32, 2) == 2
