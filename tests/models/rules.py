"""The reference system's rules of optimizers, written plainly."""

from functools import partial

import numpy as np
import optax

from exburn import optimizers
from exburn.optimizers import OptaxOptimizer

STEPS = 30
CLOSE = {"rtol": 1e-6, "atol": 1e-6}


class Adam:
    def __init__(self):
        self.m = self.v = 0.0
        self.t = 0

    def __call__(self, p, g, lr):
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * g
        self.v = 0.999 * self.v + 0.001 * g**2
        m, v = self.m / (1 - 0.9**self.t), self.v / (1 - 0.999**self.t)
        return p - lr * m / (np.sqrt(v) + 1e-8)


class SGD:
    velocity = 0.0

    def __call__(self, p, g, lr):
        self.velocity = 0.9 * self.velocity + g
        return p - lr * self.velocity


class Nesterov:
    velocity = 0.0

    def __call__(self, p, g, lr):
        self.velocity = 0.9 * self.velocity - lr * g
        return p + 0.9 * self.velocity - lr * g


class RMSprop:
    def __init__(self):
        self.v = 0.0

    def __call__(self, p, g, lr):
        self.v = 0.9 * self.v + 0.1 * g**2
        return p - lr * g / (np.sqrt(self.v) + 1e-8)


#: Those of the reference, which docs/from_exburn.md writes so; the names are Keras'.
OURS = {
    "adam": partial(OptaxOptimizer, optax.adam),
    "sgd": partial(OptaxOptimizer, partial(optax.sgd, momentum=0.9)),
    "nesterov": partial(optimizers.SGD, momentum=0.9, nesterov=True),
    "rmsprop": partial(OptaxOptimizer, partial(optax.rmsprop, eps_in_sqrt=False)),
}
RULES = {"adam": Adam, "sgd": SGD, "nesterov": Nesterov, "rmsprop": RMSprop}
