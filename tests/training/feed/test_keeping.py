"""Keys of arrays: by their bytes, form and place; and how much may be kept."""

import numpy as np

from exburn.runtime.transfer import release_spare
from exburn.training.feed import keeping
from exburn.training.feed.gather import HostGather
from exburn.training.feed.keeping import find_keys, may_keep, where_of
from exburn.training.feed.kept_arrays import KeptArrays, kept_bytes
from exburn.training.placement import OneDevice


def keys_of(*hosts, where=None):
    with HostGather(2) as gatherer:
        return find_keys(hosts, where, gatherer)


def test_equal_arrays_have_one_key_wherever_they_are():
    x = np.random.rand(40, 6).astype("float32")
    wide = np.zeros((80, 12), "float32")
    wide[::2, ::2] = x
    backward = np.asfortranarray(x)
    keys = keys_of(x, x.copy(), wide[::2, ::2], backward, x[::-1][::-1])
    assert len(set(keys)) == 1


def test_other_arrays_have_others(monkeypatch):
    monkeypatch.setattr(keeping, "_PART", 64)
    x = np.random.rand(40, 6).astype("float32")
    others = [x.view("int32"), x.reshape(60, 4), x[:-1], x[::-1], x[:, ::-1], -x, x]
    for rows in ((0, 1), (0, 39), (7, 8)):
        others.append(x.copy())
        others[-1][list(rows)] = x[list(rows)[::-1]]
    for at in np.ndindex(4, 6):
        others.append(x.copy())
        others[-1].view("uint32")[at] ^= 1 << 31
    assert len(set(keys_of(*others))) == len(others)
    assert keys_of(x) != keys_of(x, where="elsewhere")


def test_small_and_empty_rows_have_keys():
    arrays = [np.zeros((3, 0)), np.zeros(3, bool), np.zeros(1, "uint8")]
    assert len(set(keys_of(*arrays))) == 3


def test_a_digest_cannot_be_known_beforehand(monkeypatch):
    x = np.ones(8)
    before = keys_of(x)
    monkeypatch.setattr(keeping, "_SEED", keeping._SEED ^ 1)
    assert keys_of(x) != before


def test_what_is_kept_gives_way_to_what_is_used(monkeypatch):
    asked = []
    answers = [False, True]

    def fits(nbytes, devices):
        asked.append((nbytes, kept_bytes()))
        return answers.pop(0)

    monkeypatch.setattr(keeping.memory, "fits_device", fits)
    release_spare()
    store = KeptArrays()
    assert may_keep(100, OneDevice())
    assert asked == [(200, 0), (200, 0)] and not store.keys()


def test_places_are_told_apart():
    import jax

    assert where_of(OneDevice()) is None or where_of(OneDevice()) in jax.devices()
    (device, *_) = jax.devices()
    with jax.default_device(device):
        assert where_of(OneDevice()) == device
