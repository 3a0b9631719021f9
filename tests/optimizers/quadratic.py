"""What the tests of optimizers share."""

import jax
import numpy as np

from exburn.optimizers import SGD

PARAMS = {"w": np.zeros(3, np.float32)}
ONES = {"w": np.ones(3, np.float32)}


def plain(rate=0.1, **options):
    return SGD(rate, momentum=0.0, **options)


class Live:
    """A training run's state, as the trainer holds it."""

    def __init__(self, optimizer, params=PARAMS):
        self.optimizer, self.params, self.state, self.traces = (
            optimizer,
            params,
            None,
            0,
        )
        optimizer.bind(lambda: self.state, self.put)

        def update(grads, state, params):
            self.traces += 1
            return optimizer.update(grads, state, params)

        self.update = jax.jit(update)

    def put(self, state):
        self.state = state

    def step(self):
        """The size of one step on a gradient of ones."""
        if self.state is None:
            self.state = self.optimizer.init(self.params)
        new, self.state = self.update(ONES, self.state, self.params)
        size = float(self.params["w"][0] - new["w"][0])
        self.params = new
        return round(size, 6)
