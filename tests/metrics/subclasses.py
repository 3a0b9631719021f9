"""What the tests of metrics share."""

import keras
import numpy as np

from exburn import metrics

rng = np.random.default_rng(5)

N = 6

LOGITS = rng.normal(size=(N, 3)).astype("float32")

OTHER = rng.normal(size=(N, 3)).astype("float32")

PROBS = rng.dirichlet(np.ones(3), size=N).astype("float32")

LABELS = rng.integers(0, 3, N).astype("int32")

BITS = rng.integers(0, 2, (N, 3)).astype("float32")


def check_the_state_has_the_names_of_keras(name, arguments, attributes, data):
    ours, theirs = (getattr(m, name)(*arguments) for m in (metrics, keras.metrics))
    for metric in (ours, theirs):
        metric.update_state(*data)
    for attribute in attributes:
        mine, other = (np.asarray(getattr(m, attribute)) for m in (ours, theirs))
        np.testing.assert_allclose(mine, other, rtol=1e-6)
