"""What the tests of datasets share."""

import threading
import time

import numpy as np

from exburn.data import PyDataset


def values(stream, epoch=0, seed=None):
    return [int(x.flat[0]) for x, _, _ in stream.iterate(epoch, seed)]


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
