"""Memory of the host for chunks: gathered into, sent, and used again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.training.batches import X, Y

import exburn as keras
from exburn.data import ArrayDataset
from exburn.training.feed import chunk_builder, chunking, gather, stream_feed
from exburn.training.feed.base import ArrayFeed
from exburn.training.feed.gather import HostGather

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


@pytest.mark.usefixtures("cpu_only")
def test_the_memory_of_lent_batches_is_used_again(monkeypatch):
    """As on a GPU: chunks in parts, whose memory is free when they were sent."""
    x = np.random.default_rng(0).standard_normal((120, 6)).astype("float32")
    y = x.sum(-1, keepdims=True)
    taken = []

    def trained(lends):
        def shuffled(x, y):
            rng = np.random.default_rng(1)
            while True:
                order = rng.permutation(len(x))
                x[:], y[:] = x[order], y[order]
                for i in range(0, len(x), 10):
                    batch = x[i : i + 10], y[i : i + 10]
                    yield batch if lends else (batch[0].copy(), batch[1].copy())

        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
        model.compile("adam", "mse")
        batches = shuffled(x.copy(), y.copy())
        return model.fit(batches, steps_per_epoch=45, epochs=4, verbose=0).history

    expected = trained(False)

    class Sending:  # a CPU takes memory as it is, a GPU copies it
        def __getattr__(self, name):
            return getattr(jax, name)

        def device_put(self, tree):
            return jax.tree.map(lambda v: jnp.array(v, copy=True), tree)

    found = gather.HostGather._take

    def spy(self, size):
        free = len(self._free)
        memory = found(self, size)
        taken.append(len(self._free) < free)
        return memory

    monkeypatch.setattr(gather.HostGather, "_take", spy)
    monkeypatch.setattr(gather, "_COPYING", {"cpu"})
    monkeypatch.setattr(gather, "_PART", 64)
    monkeypatch.setattr(chunk_builder, "jax", Sending())
    monkeypatch.setattr(stream_feed, "default_backend", lambda: "gpu")
    monkeypatch.setattr(stream_feed, "_PART", (256, 512))
    monkeypatch.setattr(chunking, "loader_steps", lambda _: 5)
    assert trained(True) == expected
    assert sum(taken) > 10


def test_memory_is_used_again_once_it_was_sent(monkeypatch):
    """Not when so many are under way: the less there is, the more of it is cached."""
    monkeypatch.setattr(gather, "_COPYING", {*gather._COPYING, "cpu"})
    shape = (1 << 20,)

    def sent(copies):
        return jax.block_until_ready(jnp.array(copies, copy=True))

    with gather.HostGather() as gatherer:
        with gatherer.reusing(2) as reuse:
            one, two = (gatherer.empty(shape, np.uint8) for _ in range(2))
            first, second = one.ctypes.data, two.ctypes.data
            reuse(one, sent(one))
            reuse(two, sent(two))
            del one, two
            again = [gatherer.empty(shape, np.uint8) for _ in range(3)]
            assert [v.ctypes.data for v in again[:2]] == [second, first]
            assert again[2].ctypes.data not in (first, second)
        with pytest.raises(ZeroDivisionError), gatherer.reusing(2) as reuse:
            reuse(again[0], sent(again[0]))
            raise ZeroDivisionError
        assert gatherer.empty(shape, np.uint8).ctypes.data != second


RNG = np.random.default_rng(0)


@pytest.mark.parametrize("threads", [1, 3])
def test_gathered_rows_are_those_of_numpy(threads, tmp_path, monkeypatch):
    monkeypatch.setattr("exburn.training.feed.gather._PART", 64)
    mapped = np.memmap(tmp_path / "rows", np.uint8, "w+", shape=(50, 7))
    mapped[:] = RNG.integers(0, 255, mapped.shape)
    tree = {"f": X[:50], "u": mapped, "strided": X[:50, ::2], "j": jax.numpy.arange(50)}
    rows = RNG.integers(0, 50, 33)
    with HostGather(threads) as gatherer:
        found = gatherer.take(tree, rows)
        for name, array in tree.items():
            np.testing.assert_array_equal(found[name], np.asarray(array)[rows])
            assert found[name].dtype == array.dtype


@pytest.mark.usefixtures("cpu_only")
@pytest.mark.parametrize("straight", [True, False])
def test_memory_that_was_sent_is_filled_again_and_nobody_sees_it(monkeypatch, straight):
    """As with an accelerator, whose arrays are copies."""
    monkeypatch.setattr("exburn.training.feed.gather._COPYING", {"cpu"})
    monkeypatch.setattr("exburn.training.feed.gather._PART", 64)
    send, made = jax.device_put, []
    monkeypatch.setattr(jax, "device_put", lambda v: send(jax.tree.map(np.array, v)))
    empty = np.empty

    def counted(shape, dtype):
        made.append(shape)
        return empty(shape, dtype)

    monkeypatch.setattr("exburn.training.feed.gather.np.empty", counted)
    feed = ArrayFeed(ArrayDataset(X, Y), 8, 3, shuffle=not straight)
    held, kept = [], X.copy()
    for epoch in range(3):
        held.append(list(feed.epoch(5, epoch, last=epoch == 2)))  # to the end
    feed.close()
    for epoch, chunks in enumerate(held):
        order = feed._order(5, epoch)
        for part, values in zip(range(2), (X, Y), strict=True):
            found = np.concatenate([np.asarray(c.data[part]) for c in chunks])
            found = found.reshape(240, *values.shape[1:])
            np.testing.assert_array_equal(found, values[order])
    np.testing.assert_array_equal(X, kept)
    # Of 60 arrays; rows that follow one another are not copied at all.
    assert len(made) == 0 if straight else 0 < len(made) < 20
