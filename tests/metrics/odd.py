"""What the tests of metrics share."""

import numpy as np

RNG = np.random.default_rng(0)

WEIGHTS = np.array([0, 1, 2, 3, 4], np.float32)
