"""Loaders of somebody's own: iterables, iterators, and PyDataset."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.datasets.countdown import Countdown

from exburn.data import PyDataset, as_dataset
from exburn.errors import ArgumentError, DataError, DTypeError
from exburn.runtime.threads import Threads

ROOT = Path(__file__).resolve().parents[2]


def values(stream, epoch=0, seed=None):
    return [int(x.flat[0]) for x, _, _ in stream.iterate(epoch, seed)]


# --- iterables --------------------------------------------------------------------


class Reader:
    """A loader of somebody's own."""

    batch_size = 2

    def __init__(self):
        self.epoch = None

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 3

    def __iter__(self):
        return iter([np.full((2, 1), 10 * self.epoch + i) for i in range(3)])


def test_any_reiterable():
    stream = as_dataset(Reader())
    assert (stream.batches, stream.batch_size, stream.reiterable) == (3, 2, True)
    assert values(stream, 0) == [0, 1, 2]
    assert values(stream, 4) == [40, 41, 42]
    assert stream.name == "Reader"


def test_iterators_give_their_batches_once():
    for source in (iter([np.ones((2, 1))]), map(np.asarray, [[[1.0]]])):
        stream = as_dataset(source)
        assert not stream.reiterable and stream.batches is None
        assert values(stream) == [1]
        with pytest.raises(DataError, match="exhausted"):
            values(stream, 1)


def test_an_iterator_that_begins_anew_when_asked_to():
    stream = as_dataset(Countdown())
    assert [values(stream, epoch) for epoch in range(3)] == [[0, 1]] * 3


@pytest.mark.parametrize("thing", [{1, 2}, b"bytes", range(3), 5, object()])
def test_containers_and_text_are_not_loaders(thing):
    with pytest.raises(DTypeError, match="must be arrays, a data frame or a loader"):
        as_dataset(thing)


# --- PyDataset --------------------------------------------------------------------


class Squares(PyDataset):
    def __init__(self, count=5, **options):
        super().__init__(**options)
        self.count, self.events = count, []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(0.002 * (self.count - index))  # later ones are ready first
        self.events.append((index, threading.current_thread().name))
        return np.full((2, 1), index), np.full(2, index**2)

    def on_epoch_begin(self):
        self.events.append("begin")

    def on_epoch_end(self):
        self.events.append("end")


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_py_dataset_in_order(workers):
    data = Squares(workers=workers, max_queue_size=2)
    stream = as_dataset(data)
    assert stream.batches == data.num_batches == 5
    assert values(stream) == values(stream, 1) == [0, 1, 2, 3, 4]
    assert [e for e in data.events if isinstance(e, str)] == ["begin", "end"] * 2
    threads = {e[1] for e in data.events if isinstance(e, tuple)}
    assert all(t.startswith("exburn-batch") for t in threads) == (workers > 1)


def test_py_dataset_shuffles_by_seed_and_epoch():
    stream = as_dataset(Squares(20))
    first = values(stream, 0, seed=3)
    assert sorted(first) == list(range(20)) != first
    assert values(stream, 0, seed=3) == first
    assert values(stream, 1, seed=3) != first
    assert values(stream, 0, seed=4) != first
    assert stream.peek(3)[0].flat[0] == first[0]


def test_the_queue_is_bounded():
    data = Squares(20, workers=2, max_queue_size=3)
    batches = as_dataset(data).iterate()
    next(batches)
    time.sleep(0.2)
    made = len([e for e in data.events if isinstance(e, tuple)])
    batches.close()
    assert made <= 4


def test_on_epoch_end_needs_all_batches_but_no_further_read():
    data = Squares(3)
    batches = as_dataset(data).iterate()
    for _ in range(3):
        next(batches)
    batches.close()
    assert data.events[-1] == "end"
    batches = as_dataset(data).iterate()
    next(batches)
    batches.close()
    assert data.events[-1] != "end"


def test_a_py_dataset_may_grow_between_epochs():
    class Growing(PyDataset):
        size = 1

        def __len__(self):
            return self.size

        def __getitem__(self, index):
            return np.full((1, 1), index)

        def on_epoch_end(self):
            self.size += 2

    stream = as_dataset(Growing())
    assert [len(list(stream.iterate(epoch))) for epoch in range(3)] == [1, 3, 5]


def test_an_endless_py_dataset():
    class Endless(PyDataset):
        def __getitem__(self, index):
            return np.full((1, 1), index)

    data = Endless()
    assert data.num_batches is None
    stream = as_dataset(data)
    assert stream.batches == sys.maxsize
    batches = stream.iterate(0, 7)
    assert [int(next(batches)[0][0, 0]) for _ in range(4)] == [0, 1, 2, 3]


def test_a_subclass_may_forget_to_call_its_base():
    class Forgetful(PyDataset):
        def __init__(self):
            self.rows = [np.zeros((1, 1))]

        def __len__(self):
            return 1

        def __getitem__(self, index):
            return self.rows[index]

    assert values(as_dataset(Forgetful())) == [0]


@pytest.mark.parametrize("options", [{"workers": -1}, {"max_queue_size": 0}])
def test_py_dataset_options(options):
    with pytest.raises(ArgumentError, match="max_queue_size at least 1"):
        PyDataset(**options)


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_in_a_worker_is_the_users_own(workers):
    class Failing(Squares):
        def __getitem__(self, index):
            return {}[index]

    with pytest.raises(KeyError) as caught:
        values(as_dataset(Failing(workers=workers)))
    assert caught.value.__notes__ == ["while reading batch 0 of epoch 0 (Failing)"]


def test_py_dataset_is_abstract():
    with pytest.raises(NotImplementedError, match="PyDataset.__getitem__"):
        PyDataset()[0]


@pytest.mark.slow
def test_processes():
    """One spawned pool lives over the epochs; hooks that change the data are seen."""
    code = """
import multiprocessing, os, time
from batches_in_workers import From, Growing, Moved, Numbers
from exburn.data import as_dataset
from exburn.errors import DataError
import exburn.datasets
if __name__ == "__main__":
    stream = as_dataset(Numbers(workers=1, use_multiprocessing=True))
    pids = set()
    for epoch in range(2):
        batches = list(stream.iterate(epoch))
        assert [int(x[0, 0]) for x, _, _ in batches] == [0, 1, 2, 3, 4, 5]
        pids |= {int(y[0]) for _, y, _ in batches}
    assert len(pids) == 1 and os.getpid() not in pids, pids
    del stream
    assert not multiprocessing.active_children()
    for first, said in (99, "a worker process died"), (98, "Twofold: disk gone"):
        try:
            list(as_dataset(From(first, use_multiprocessing=True)).iterate())
        except DataError as error:
            assert said in str(error), error
        else:
            raise AssertionError("the error of a worker went unnoticed")
    stream, pids = as_dataset(Numbers(20, use_multiprocessing=True)), set()
    for epoch in range(2):  # of which the first batches are taken
        batches = stream.iterate(epoch)
        pids.add(int(next(batches)[1][0]))
        batches.close()
    assert len(pids) == 1, pids
    stream = as_dataset(From(96, workers=2, use_multiprocessing=True))
    next(stream.iterate())
    time.sleep(0.5)
    stream.close()  # a batch takes for ever: the process ends all the same
    stream = as_dataset(Growing(2, use_multiprocessing=True))
    for epoch in range(2):
        firsts = [int(x[0, 0]) for x, _, _ in stream.iterate(epoch)]
        assert firsts == [10 * epoch, 10 * epoch + 1], firsts
    data = Moved(use_multiprocessing=True)
    stream = as_dataset(data)
    for epoch in range(3):  # as a callback does
        assert [int(x[0, 0]) for x, _, _ in stream.iterate(epoch)] == [data.start]
        data.start += 5
    print("fine")
"""
    script = "import sys; sys.argv = ['x']\n" + code
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "fine", done.stderr


@pytest.mark.slow
def test_a_thread_at_its_batch_keeps_no_program_alive():
    code = "import time; from exburn.runtime.threads import Threads\n"
    code += "Threads(2, 'batch').submit(time.sleep, 600)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_threads_do_what_was_submitted_or_cancel_it():
    pool, free = Threads(1, "batch"), threading.Event()
    held, done, dropped = (pool.submit(f) for f in (free.wait, int, int))
    assert held.running() or not held.done()
    dropped.cancel()
    free.set()
    pool.shutdown()
    assert done.result() == 0 and dropped.cancelled()
    pool = Threads(1, "batch")
    failed = pool.submit({}.__getitem__, 1)
    with pytest.raises(KeyError):
        failed.result()
    pool.shutdown(cancel_futures=True)


def test_a_data_set_that_cannot_be_pickled():
    data = Squares(use_multiprocessing=True)
    data.lock = threading.Lock()
    with pytest.raises(DataError, match="pickle can copy"):
        values(as_dataset(data))


def test_keras_own_py_dataset():
    keras = pytest.importorskip("keras")

    class Theirs(keras.utils.PyDataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return np.full((1, 1), index)

        def on_epoch_begin(self):
            self.begun = True

        def on_epoch_end(self):
            self.ended = True

    data = Theirs(workers=2)
    stream = as_dataset(data)
    assert stream.batches == 2 and values(stream) == [0, 1]
    assert data.begun and data.ended


def test_keras_own_py_dataset_that_tells_its_batches_otherwise():
    keras = pytest.importorskip("keras")

    class Endless(keras.utils.PyDataset):
        def __getitem__(self, index):
            return np.full((1, 1), index)

    class Counted(Endless):
        @property
        def num_batches(self):
            return 3

    assert values(as_dataset(Counted())) == [0, 1, 2]
    assert as_dataset(Endless()).batches == sys.maxsize
