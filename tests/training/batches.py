"""Batches of three classes, a loader of them, and the threads that carry them."""

import threading
import time

import numpy as np

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(240, 4)).astype(np.float32)
Y = _RNG.integers(0, 3, 240).astype(np.int32)


def threads():
    """Names of the threads that feed and compile, which run.

    A server's, which other tests of the process may have, and the one that starts a
    GPU, are not among them.
    """
    others = ("wake", "serving", "http", "stream", "text")
    others = tuple(f"exburn-{other}" for other in others)
    names = [t.name for t in threading.enumerate() if t.name.startswith("exburn-")]
    return [name for name in names if not name.startswith(others)]


class Batches:
    """A loader of batches, which may be slow, or fail at some batch."""

    def __init__(self, pause=0.0, fails_at=None, size=24):
        self.pause, self.fails_at, self.size = pause, fails_at, size
        self.given = 0

    def __len__(self):
        return len(X) // self.size

    def __iter__(self):
        self.given = 0
        for index in range(len(self)):
            time.sleep(self.pause)
            yield self.read(index)
            self.given += 1

    def read(self, index):
        if index == self.fails_at:
            raise OSError("the disk is gone")
        rows = slice(index * self.size, (index + 1) * self.size)
        return X[rows], Y[rows]
