"""Inputs for the contract of layers."""

import numpy as np

rng = np.random.default_rng(0)
FLAT = rng.normal(size=(4, 6)).astype("float32")
SEQUENCE = rng.normal(size=(4, 8, 4)).astype("float32")
IMAGE = rng.normal(size=(4, 6, 8, 4)).astype("float32")
VOLUME = rng.normal(size=(4, 4, 5, 6, 2)).astype("float32")
TWO = [SEQUENCE, rng.normal(size=SEQUENCE.shape).astype("float32")]
TIME, PLACE = {"free": (1,)}, {"free": (1, 2)}
