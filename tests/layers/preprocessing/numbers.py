"""What the tests of preprocessing share."""

import numpy as np

rng = np.random.default_rng(0)
FLAT = rng.normal(3, 2, (4, 6)).astype("float32")
SEQUENCE = rng.normal(-1, 4, (4, 8, 3)).astype("float32")
VALUES = (1e4 + rng.normal(size=(1000, 3)) * [0.1, 1, 10]).astype("float32")
