"""A product with very many columns."""

import numpy as np

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 8)).astype(np.float32)
KERNEL = RNG.standard_normal((8, 5_001)).astype(np.float32)
