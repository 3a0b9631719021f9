"""PyDatasets that a spawned worker can import (beside the tests, not a test)."""

import os
import time

import numpy as np

from exburn.data import PyDataset


class Twofold(Exception):
    """Its pickle cannot be read: it would be made of one argument."""

    def __init__(self, what, how):
        super().__init__(f"{what} {how}")


class Numbers(PyDataset):
    """Batch i holds i and the number of the process that made it."""

    def __init__(self, count=6, **options):
        super().__init__(**options)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index == 99:
            os._exit(3)
        if index == 98:
            raise Twofold("disk", "gone")
        if index == 97:
            time.sleep(600)
        return np.full((2, 1), index), np.full(2, os.getpid() % 2**31)


class From(Numbers):
    """Begins with another number."""

    def __getitem__(self, index):
        return super().__getitem__(index + self.count)

    def __len__(self):
        return 3


class Growing(Numbers):
    """Its batches depend on how many epochs have ended."""

    epochs = 0

    def __getitem__(self, index):
        return np.full((2, 1), index + 10 * self.epochs)

    def on_epoch_end(self):
        self.epochs += 1


class Moved(PyDataset):
    """Begins where somebody has set it to."""

    def __init__(self, **options):
        super().__init__(**options)
        self.start = 3

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return np.full((1, 1), self.start), np.zeros(1)
