"""What the tests of namespaces share."""

import numpy as np

ROWS = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")
RGB = np.ones((1, 4, 4, 3), "float32")
