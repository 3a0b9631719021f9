"""A loader that is its own iterator."""

import numpy as np


class Countdown:
    """Gives two batches, of zeros and of ones; ``iter`` begins anew."""

    def __len__(self):
        return 2

    def __iter__(self):
        self.left = [1, 0]
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        return np.full((1, 1), self.left.pop(), np.float32)
