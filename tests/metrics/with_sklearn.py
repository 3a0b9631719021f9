"""A metric beside scikit-learn, on weighted data that comes in uneven batches."""

import jax
import numpy as np

rng = np.random.default_rng(7)

N, SPLITS = 60, (40,)

BITS = rng.integers(0, 2, N)

SCORES = np.round(rng.uniform(size=N) * 0.6 + 0.4 * BITS, 2).astype("float32")

LABELS = rng.integers(0, 3, N)

PROBS = rng.dirichlet(np.ones(3), size=N).astype("float32")

CHOSEN = PROBS.argmax(1)

REAL = rng.normal(size=(N, 2)).astype("float32")

GUESS = (REAL + 0.5 * rng.normal(size=(N, 2))).astype("float32")

WEIGHT = rng.uniform(0, 2, size=N).astype("float32")

WEIGHT[::7] = 0


def value(metric, y_true, y_pred):
    metric.build(y_true, y_pred)

    @jax.jit
    def run(y_true, y_pred, weight):
        state = metric.init()
        for rows in np.split(np.arange(N), SPLITS):
            part = slice(rows[0], rows[-1] + 1)
            state = metric.update(state, y_true[part], y_pred[part], weight[part])
        return metric.compute(state)

    return np.asarray(run(y_true, y_pred, WEIGHT))


def weighted(function, *arguments, **options):
    return function(*arguments, sample_weight=WEIGHT, **options)


ABOVE = SCORES > 0.5
