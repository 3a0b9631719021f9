"""What the tests of layers share."""

import numpy as np

X = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")
IMAGE = np.ones((2, 4, 4, 3), "float32")
