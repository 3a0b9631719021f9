"""A metric beside that of Keras, over streams of uneven batches."""

import jax
import jax.numpy as jnp
import numpy as np
from tests.golden import keras, recorded

from exburn import metrics

rng = np.random.default_rng(1)

BATCHES = (7, 3)


def stream(make):
    return [make(n) for n in BATCHES]


def uniform(*shape):
    return lambda n: rng.uniform(0.01, 0.99, size=(n, *shape)).astype("float32")


def normal(*shape):
    return lambda n: rng.normal(size=(n, *shape)).astype("float32")


def integers(high, *shape, dtype="int32"):
    return lambda n: rng.integers(0, high, size=(n, *shape)).astype(dtype)


def one_hot(classes):
    return lambda n: np.eye(classes, dtype="float32")[rng.integers(0, classes, n)]


def distribution(classes):
    return lambda n: rng.dirichlet(np.ones(classes), size=n).astype("float32")


ROWS = stream(lambda n: rng.uniform(0.1, 2, size=n).astype("float32"))

UNIT, UNIT_1, UNIT_FLAT = stream(uniform(4)), stream(uniform(1)), stream(uniform())

BITS, BITS_1 = stream(integers(2, 4)), stream(integers(2, 1))

BITS_FLAT = stream(integers(2, dtype="float32"))

REAL, REAL_2 = stream(normal(4)), stream(normal(4))

LABELS, ONE_HOT, PROBS = (
    stream(integers(4)),
    stream(one_hot(4)),
    stream(distribution(4)),
)

PROBS_2 = stream(distribution(4))

MAP, MAP_2 = stream(integers(4, 3, 3)), stream(integers(4, 3, 3))

MAP_ONE_HOT = [np.eye(4, dtype="float32")[m] for m in MAP]

MAP_SCORES = stream(uniform(3, 3, 4))

MAP_BITS, MAP_UNIT = stream(integers(2, 3, 3)), stream(uniform(3, 3))

IDS = [np.argsort(-p, axis=-1).astype("int32") for p in PROBS]


def accumulated(metric, batches):
    """The value after the stream, through the pure functions."""
    state = metric.init()
    for t, p, w in batches:
        state = metric.update(state, t, p, w)
    return metric.compute(state)


def reference(metric, batches):
    """The same for a Keras metric: its value, or its state if that is all it can."""
    state = [jnp.zeros(v.shape, v.dtype) for v in metric.variables]
    for t, p, w in batches:
        state = metric.stateless_update_state(state, t, p, sample_weight=w)
    return state if needs_eager_result(metric) else metric.stateless_result(state)


def needs_eager_result(metric):
    return getattr(metric, "num_regressors", 0)


def check_streams(name, options, y_true, y_pred, weighted):
    ours = getattr(metrics, name)(**options)
    weights = entries = ROWS if weighted else [None] * len(BATCHES)
    if "IoU" in name and weighted:  # Keras wants a weight for each entry
        entries = [np.broadcast_to(w[:, None, None], (len(w), 3, 3)) for w in weights]
    ours.build(y_true[0], y_pred[0])

    def of_keras():
        # By default Keras' IoU cuts float weights to whole numbers.
        metric = getattr(keras.metrics, name)(**options, dtype="float32")
        jax.eval_shape(metric.update_state, y_true[0], y_pred[0])  # some make variables
        batches = list(zip(y_true, y_pred, entries, strict=True))
        result = jax.jit(lambda b: reference(metric, b))(batches)
        if needs_eager_result(metric):
            for variable, array in zip(metric.variables, result, strict=True):
                variable.assign(array)
            result = metric.result()
        return metric.name.rstrip("_0123456789"), result

    their_name, expected = recorded(of_keras)
    assert ours.name == their_name or ours.name == "f1_score"
    mine = list(zip(y_true, y_pred, weights, strict=True))
    value = jax.jit(lambda batches: accumulated(ours, batches))(mine)
    assert value.shape == expected.shape
    np.testing.assert_allclose(value, expected, rtol=2e-5, atol=2e-6)
