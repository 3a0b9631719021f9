"""Rows that a run finds on the device: sent once, and as they are now."""

import numpy as np
import pytest

from exburn.data import ArrayDataset
from exburn.training.feed import keeping, resident_rows
from exburn.training.feed.gather import HostGather
from exburn.training.feed.kept_arrays import KeptArrays, owners_of
from exburn.training.feed.resident_rows import ResidentRows
from exburn.training.placement import OneDevice


class Counting(OneDevice):
    def __init__(self):
        self.sent = 0

    def send_whole(self, tree):
        self.sent += sum(leaf.nbytes for leaf in tree if isinstance(leaf, np.ndarray))
        return super().send_whole(tree)


@pytest.fixture
def rows():
    """Gives ``run(x, y)``: the rows as a run sees them, and bytes sent for it."""
    store, placement = KeptArrays(), Counting()

    def run(x, y=None, *, tries=False, check=None):
        before, data = placement.sent, ArrayDataset(x, y)
        data.check = check
        with HostGather(2) as gatherer:
            own = ResidentRows(data, gatherer, placement, store, owners_of(x, y))
            seen, prove = own.take(tries=tries)
            trial = prove is not None
            if trial and (other := prove()) is not None:
                seen = other
            assert own.take() == (seen, None)
            seen = [np.asarray(leaf) for leaf in seen if leaf is not None]
            own.close()
        return seen, placement.sent - before, trial

    run.store = store
    return run


def test_what_did_not_change_is_sent_once(rows):
    x, y = np.random.rand(64, 4).astype("float32"), np.arange(64)
    assert rows(x, y)[1] == x.nbytes + 64 * 4
    for _ in range(2):
        (seen, labels), sent, _ = rows(x, y)  # labels are converted anew
        assert sent == 0
        np.testing.assert_array_equal(seen, x)
        np.testing.assert_array_equal(labels, y)
    y[3] = 7
    (_, labels), sent, _ = rows(x, y)
    assert labels[3] == 7 and sent == 64 * 4  # x is there


def test_an_array_that_is_given_twice_is_sent_once(rows):
    x = np.random.rand(64, 4).astype("float32")
    (a, b), sent, _ = rows(x, x)
    assert sent == x.nbytes
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("order", ["C", "F", "rows", "columns", "back"])
def test_each_element_counts_whatever_the_strides(rows, order, monkeypatch):
    monkeypatch.setattr(keeping, "_PART", 256)  # several parts
    x = np.random.rand(50, 6).astype("float32")
    x = {
        "C": x, "F": np.asfortranarray(x), "rows": x[::2], "columns": x[:, 1::2],
        "back": x[::-1, ::-1],
    }[order]  # fmt: skip
    rows(x)
    assert rows(x)[1] == 0
    for at in np.ndindex(*x.shape):
        x[at] += 1
        (seen,), sent, _ = rows(x)
        assert sent == x.nbytes
        np.testing.assert_array_equal(seen, x)
        if sum(at) > 6:
            break


def test_a_trial_gives_way_to_what_is_there_now(rows, monkeypatch):
    monkeypatch.setattr(resident_rows, "_LITTLE", 0)
    x = np.random.rand(64, 4).astype("float32")
    assert not rows(x, tries=True)[2]  # nothing to try
    assert rows(x, tries=True)[1:] == (0, True)
    x[5] *= -1
    (seen,), sent, trial = rows(x, tries=True)
    np.testing.assert_array_equal(seen, x)
    assert sent == x.nbytes and trial
    # An array that was filled anew may be so again: it is looked at first, until it
    # was found unchanged.
    assert rows(x, tries=True)[1:] == (0, False)
    assert rows(x, tries=True)[1:] == (0, True)


def test_little_is_looked_at_first(rows):
    x = np.random.rand(64, 4).astype("float32")
    rows(x, tries=True)
    assert rows(x, tries=True)[1:] == (0, False)


def test_values_are_checked_once_and_whenever_they_change(rows, monkeypatch):
    monkeypatch.setattr(resident_rows, "_LITTLE", 0)
    x, looks = np.random.rand(64, 4).astype("float32"), []

    def check(tree):
        looks.append(tree)
        if np.isnan(tree[0]).any():
            raise ValueError("bad")

    rows(x)  # was checked by others
    for tries in (True, False, True):
        rows(x, tries=tries, check=check)
    assert len(looks) == 1
    x[0, 0] = np.nan
    for tries in (True, False, True, False):
        with pytest.raises(ValueError, match="bad"):
            rows(x, tries=tries, check=check)
    x[0, 0] = 0
    assert rows(x, check=check)[0][0][0, 0] == 0
    assert rows(x, check=lambda tree: looks.append(1)) and looks[-1] == 1  # another


def test_what_does_not_fit_is_not_kept(rows, monkeypatch):
    x = np.random.rand(64, 4).astype("float32")
    asked = []
    monkeypatch.setattr(keeping.memory, "fits_device", lambda n, _: asked.append(n))
    rows(x)
    assert not rows.store.keys() and asked[-1] == 2 * x.nbytes
    assert rows(x)[1] == x.nbytes


def test_without_a_keeper_all_is_sent_and_checked():
    x, looks = np.random.rand(64, 4).astype("float32"), []
    data = ArrayDataset(x)
    data.check = looks.append
    with HostGather(2) as gatherer:
        own = ResidentRows(data, gatherer, OneDevice())
        seen, prove = own.take(tries=True)
        x[:] = 0
        assert np.asarray(seen[0]).any() and prove is None and len(looks) == 1
