"""Arrays that stay on the device between runs: who keeps them alive, and how long."""

import gc
import weakref

import jax
import numpy as np

import exburn
from exburn.runtime.transfer import release_spare
from exburn.training.feed import kept_arrays
from exburn.training.feed.kept_arrays import (
    KeptArray,
    KeptArrays,
    kept_bytes,
    memory_of,
    owners_of,
)


def slot(host, digest=b"1"):
    key = digest, host.shape, host.dtype.str, None
    return KeptArray(memory_of(host), key, jax.device_put(host.copy()))


def kept_of(*hosts, owners=(), digest=b"1"):
    store = KeptArrays()
    owners = list(map(weakref.ref, owners))
    store.keep([slot(host, digest) for host in hosts], owners, ())
    return store


def test_they_go_when_the_last_owner_does():
    release_spare()
    x, y = np.ones((4, 2), "float32"), np.ones(4, "float32")
    store = kept_of(x, owners=[x, y])
    assert kept_bytes() == 32
    seen = weakref.ref(x)
    del x
    assert seen() is None and store.keys()
    del y
    assert not store.keys() and kept_bytes() == 0


def test_they_go_with_their_trainer():
    release_spare()
    x = np.ones((4, 2), "float32")
    store = kept_of(x, owners=[x])
    array = weakref.ref(store.arrays()[0])
    del store
    gc.collect()
    assert array() is None and kept_bytes() == 0


def test_two_trainers_share_equal_arrays():
    release_spare()
    x = np.ones((4, 2), "float32")
    first = kept_of(x, owners=[x], digest=b"shared")
    second, key = KeptArrays(), first.keys()[0]
    assert second.find([key])[key] is first.arrays()[0]
    second.keep([slot(x, b"shared")], [], ())
    assert kept_bytes() == 32  # one for both
    first.release()
    second.release()
    assert not KeptArrays().find([key])


def test_other_arrays_take_their_place():
    x = np.ones((4, 2), "float32")
    store = kept_of(x, owners=[x])
    assert store.find([(b"2", x.shape, x.dtype.str, None)]) == {}
    assert not store.keys()


def test_memory_is_told_by_place_form_and_stride():
    x = np.zeros((4, 4), "float32")
    store = kept_of(x, owners=[x])
    same = [x, x[:], x.view()]
    others = [x[1:], x.T, x[:, ::-1], x.view("int32"), x[:, :2], x.copy()]
    assert all(store.are_of([host]) for host in same)
    assert not any(store.are_of([host]) for host in others)
    assert not store.are_of([x, x]) and not store.are_of([])
    assert store.lie_at(None) and not store.lie_at(jax.devices()[0])
    store.arrays()[0].delete()
    assert not store.are_of([x])


def test_the_owner_of_a_view_is_what_has_its_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_arrays, "_SMALL", 0)
    x = np.zeros((8, 2), "float32")
    (owner,) = owners_of({"a": x[2:][:, :1]})
    assert owner() is x
    (buffered,) = owners_of(view := np.frombuffer(bytes(8), "float32"))
    assert buffered() is view  # bytes cannot tell that they are gone
    assert owners_of([1.0, 2.0], None, "text") == []
    mapped = np.memmap(tmp_path / "x", "float32", "w+", shape=(4,))
    (owner,) = owners_of(np.asarray(mapped)[1:])
    assert owner() is not None


def test_a_small_array_can_still_be_resized():
    x = np.zeros((8, 2), "float32")
    assert owners_of(x) == []
    x.resize((4, 2), refcheck=False)


def test_they_go_with_the_session():
    x = np.ones((4, 2), "float32")
    store = kept_of(x, owners=[x])
    exburn.backend.clear_session(free_memory=False)
    assert store.keys()
    exburn.backend.clear_session()
    assert not store.keys() and kept_bytes() == 0
