"""Tests of ``exburn.training.feed.sampled_feed``."""

import contextlib

import numpy as np
import pytest

from exburn.training.feed.sampled_feed import SampledDataset, SampledFeed
from exburn.training.placement import OneDevice


class Holder:
    """Shows weights while something samples."""

    shows = False

    @contextlib.contextmanager
    def lending(self):
        self.shows = True
        yield
        self.shows = False


def make(steps=None, rounds=3, steps_of_round=2):
    holder, asked = Holder(), []

    def sample(seed, epoch, number):
        assert holder.shows
        asked.append((seed, epoch, number))
        return tuple(np.full((steps_of_round, 4), number) for _ in range(3))

    dataset = SampledDataset(
        sample,
        (np.zeros(4),) * 3,
        rounds=rounds,
        steps=steps_of_round,
        rows=4,
        settings={"group": 8},
        op="improve",
    )
    dataset.earlier = 5
    feed = SampledFeed(dataset, holder, steps=steps, placement=OneDevice())
    return feed, asked, holder


def test_a_round_is_made_when_the_loop_comes_to_it():
    feed, asked, holder = make()
    chunks = feed.epoch(7, 1)
    assert not asked and feed.steps == 6
    for number in range(3):
        chunk = next(chunks)
        assert asked[-1] == (7, 6, number) and len(asked) == number + 1
        assert not holder.shows and (chunk.steps, chunk.samples) == (2, 8)
        assert np.asarray(chunk.data[0]).tolist() == [[number] * 4] * 2
    assert next(chunks, None) is None


@pytest.mark.parametrize(
    ("steps", "start", "rounds"),
    [(None, 4, [2]), (None, 6, []), (4, 0, [0, 1]), (1, 0, [0])],
)
def test_whole_rounds_are_left_out(steps, start, rounds):
    feed, asked, _ = make(steps)
    assert len(list(feed.epoch(7, 0, start=start))) == len(rounds)
    assert [number for _, _, number in asked] == rounds


def test_nothing_is_sampled_to_look_at_the_form():
    feed, asked, _ = make()
    assert feed.dataset.peek(3)[0].shape == (4,) and not asked
    assert feed.facts == {"batch_size": 4, "steps": 6}
