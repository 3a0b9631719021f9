"""What metrics promise beyond their values, as functions of a case."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import symbolic_shape

from exburn import metrics
from exburn.errors import ArgumentError

rng = np.random.default_rng(5)

N = 6

LOGITS = rng.normal(size=(N, 3)).astype("float32")

OTHER = rng.normal(size=(N, 3)).astype("float32")

PROBS = rng.dirichlet(np.ones(3), size=N).astype("float32")

LABELS = rng.integers(0, 3, N).astype("int32")

ONE_HOT = np.eye(3, dtype="float32")[LABELS]

BITS = rng.integers(0, 2, (N, 3)).astype("float32")


def spec(*shape, dtype="float32"):
    return jax.ShapeDtypeStruct(symbolic_shape(", ".join(map(str, shape))), dtype)


def fresh(metric):
    return type(metric).from_config(metric.get_config())


def distance(y_true, y_pred):
    return jnp.mean(jnp.abs(y_true - y_pred), axis=-1)


def check_padding_has_no_effect(metric, y_true, y_pred):
    """Rows of weight 0 that are not finite, in a scan; and the surface agrees."""
    metric = fresh(metric)
    metric.build(y_true, y_pred)
    state = metric.init()
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(state))
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(state))
    size = 4  # chunks of 4 and 2 + 2 rows of padding
    if metric.name.startswith(("pearson", "concordance")) and metric.axis == 0:
        size = N  # the correlation of a batch depends on the batch

    def chunks(x, junk):
        rows = -len(x) % size or 2 * (size == N)
        tail = np.full((rows, *x.shape[1:]), junk).astype(x.dtype)
        padded = np.concatenate([x, tail])
        if len(padded) % size:
            return padded[None]
        return padded.reshape(-1, size, *x.shape[1:])

    junk = np.nan if y_pred.dtype == np.float32 else 10**6
    batches = (
        chunks(y_true, 99),
        chunks(y_pred, junk),
        chunks(np.ones(N, "float32"), 0),
    )

    @jax.jit
    def run(state, batches, y_true, y_pred):
        def step(state, batch):
            t, p, w = batch
            return metric.update(state, t, p, sample_weight=w), None

        padded = jax.lax.scan(step, state, batches)[0]
        plain = metric.update(state, y_true, y_pred)
        return [metric.compute(s) for s in (padded, plain, state)]

    value, expected, empty = run(state, batches, y_true, y_pred)
    assert np.isfinite(expected).all() and np.isfinite(empty).all()
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-7)
    assert metric._state is None  # nothing leaked


def check_keras_surface(metric, y_true, y_pred):
    metric = fresh(metric)
    metric.update_state(y_true[:4], y_pred[:4])
    first = np.asarray(metric.result())
    whole = metric(y_true[4:], y_pred[4:], sample_weight=np.ones(2))
    pure = metric.init()
    for rows in (slice(4), slice(4, None)):
        pure = metric.update(pure, y_true[rows], y_pred[rows])
    np.testing.assert_allclose(whole, metric.compute(pure), rtol=1e-5)
    values = metric.stateless_reset_state()
    values = metric.stateless_update_state(values, y_true[:4], y_pred[:4])
    np.testing.assert_allclose(metric.stateless_result(values), first, rtol=1e-6)
    np.testing.assert_allclose(metric.result(), whole)  # untouched
    assert [v.shape for v in metric.variables] == [np.shape(v) for v in values]
    metric.reset_state()
    assert all(not v.numpy().any() for v in metric.variables)
    with pytest.raises(ArgumentError, match="one value for each variable"):
        metric.stateless_result([])


def check_config_round_trip(metric, y_true, y_pred):
    config = {**metric.get_config(), "name": "mine"}
    metric = type(metric).from_config(config)
    again = metrics.deserialize(metrics.serialize(metric))
    assert type(again) is type(metric)
    assert again.get_config() == metric.get_config()
    assert again.name == "mine"
