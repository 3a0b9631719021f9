"""Arrays that the cases of many ops are made of, and the tables of cases."""

import numpy as np


class Draws:
    """Random arrays; each file of tests has its own, so that none depends on others."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def floats(self, *shape, low=0.1, high=0.9):
        return self.rng.uniform(low, high, shape).astype("float32")

    def ints(self, *shape, low=0, high=5):
        return self.rng.integers(low, high, shape).astype("int32")


_draws = Draws()
floats, ints = _draws.floats, _draws.ints

X, Y = floats(3, 4), floats(3, 4)
S = floats(3, 4, low=-2, high=2)
N = np.array([[1.0, np.nan, 3.0, 2.0], [4.0, 0.5, np.inf, np.nan]], "float32")
K, J = ints(3, 4), ints(3, 4, low=1)
B, C = X > 0.5, Y > 0.5
V, W = floats(4), floats(4)
Z = X + 1j * Y
I8 = np.full((3, 5), 100, "int8")  # whose products are no int8
M = floats(2, 3, 3) + 3 * np.eye(3, dtype="float32")  # well conditioned
P = M @ M.transpose(0, 2, 1)
IDS = np.array([0, 0, 2], "int32")
LENGTHS = np.array([8, 6], "int32")
PLACES = np.array([[0, 1], [2, 0]], "int32")
IMAGES = floats(2, 6, 8, 3)
VOLUMES = floats(2, 4, 5, 6, 2)
SEQUENCE = floats(2, 9, 3)


def case(*args, **kwargs):
    return args, kwargs


def axes(x=S):
    return [case(x), case(x, axis=1, keepdims=True), case(x, (0, 1))]


def axis(x=S):
    return [case(x), case(x, axis=1, keepdims=True), case(x, 0)]
