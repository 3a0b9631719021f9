"""What the tests of metrics share."""

import numpy as np
from tests.golden import keras, recorded

from exburn import metrics

rng = np.random.default_rng(5)

N = 6

LOGITS = rng.normal(size=(N, 3)).astype("float32")

OTHER = rng.normal(size=(N, 3)).astype("float32")

PROBS = rng.dirichlet(np.ones(3), size=N).astype("float32")

LABELS = rng.integers(0, 3, N).astype("int32")

BITS = rng.integers(0, 2, (N, 3)).astype("float32")


def check_the_state_has_the_names_of_keras(name, arguments, attributes, data):
    def read_state(module):
        metric = getattr(module, name)(*arguments)
        metric.update_state(*data)
        return [np.asarray(getattr(metric, attribute)) for attribute in attributes]

    theirs = recorded(lambda: read_state(keras.metrics))
    for mine, other in zip(read_state(metrics), theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6)
