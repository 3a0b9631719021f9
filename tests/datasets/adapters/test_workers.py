"""Tests of ``exburn.datasets.adapters.workers``."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.datasets.adapters.squares import Squares, values

from exburn.data import as_dataset
from exburn.errors import DataError, places_of
from exburn.runtime.threads import Threads

ROOT = Path(__file__).resolve().parents[2]


def test_the_queue_is_bounded():
    data = Squares(20, workers=2, max_queue_size=3)
    batches = as_dataset(data).iterate()
    next(batches)
    time.sleep(0.2)
    made = len([e for e in data.events if isinstance(e, tuple)])
    batches.close()
    assert made <= 4


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_in_a_worker_is_the_users_own(workers):
    class Failing(Squares):
        def __getitem__(self, index):
            return {}[index]

    with pytest.raises(KeyError) as caught:
        values(as_dataset(Failing(workers=workers)))
    assert places_of(caught.value) == ["while reading batch 0 of epoch 0 (Failing)"]


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
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "fine", done.stderr


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
