import numpy as np
import pytest

from exburn.data.buckets import MOST_BUCKETS, choose_buckets


def positions(buckets, batch_size):
    rows = [-(-len(rows) // batch_size) * batch_size for rows, _ in buckets]
    return sum(n * sum(widths) for n, (_, widths) in zip(rows, buckets, strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_every_row_is_in_one_bucket_that_it_fits_into(seed):
    lengths = np.random.default_rng(seed).integers(1, 300, 3000)
    buckets = choose_buckets([lengths], 32)
    assert len(buckets) <= MOST_BUCKETS
    rows = np.concatenate([rows for rows, _ in buckets])
    assert sorted(rows) == list(range(3000))
    for rows, (width,) in buckets:
        assert lengths[rows].max() <= width <= 300


def test_text_is_filled_up_by_less_than_a_third():
    rng = np.random.default_rng(0)
    lengths = np.clip(np.exp(rng.normal(4, 0.7, 4000)), 10, 256).astype(int)
    assert positions(choose_buckets([lengths], 32), 32) < lengths.sum() * 1.33
    assert 4000 * lengths.max() > lengths.sum() * 3  # to the longest


def test_the_cut_is_the_best_one():
    lengths = np.array([1, 2, 3, 10, 11, 50] * 40)
    best = min(
        sum(
            ((lengths > low) & (lengths <= high)).sum() * high
            for low, high in zip((0, *cut), (*cut, 50), strict=True)
        )
        for cut in [(3, 11), (2, 11), (1, 11), (3, 10), (11,), (3,), (1, 3)]
    )
    assert positions(choose_buckets([lengths], 1, most=3), 1) == best


def test_a_width_more_must_pay():
    lengths = np.array([100] * 50 + [99] * 50)
    assert [w for _, w in choose_buckets([lengths], 2)] == [(100,)]


def test_a_short_epoch_has_few_programs():
    assert len(choose_buckets([np.arange(1, 65)], 32)) == 1


def test_two_axes_have_widths_of_their_own():
    short, long = np.array([2, 2, 5, 5] * 8), np.array([9, 9, 30, 30] * 8)
    assert [w for _, w in choose_buckets([short, long], 1)] == [(2, 9), (5, 30)]
