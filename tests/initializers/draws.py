"""What the tests of level1 share."""

import numpy as np

SHAPE = (250, 400)

SCALED = {  # name: (variance, whether uniform), for 250 inputs and 400 outputs
    "glorot_uniform": (2 / 650, True),
    "glorot_normal": (2 / 650, False),
    "he_uniform": (2 / 250, True),
    "he_normal": (2 / 250, False),
    "lecun_uniform": (1 / 250, True),
    "lecun_normal": (1 / 250, False),
}


def philox(seed=0):
    return np.random.Generator(np.random.Philox(seed))


def kurtosis(x):
    return float(np.mean((x - x.mean()) ** 4) / x.var() ** 2)
