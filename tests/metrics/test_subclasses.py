"""Metrics written in Keras' way, with variables, run through the pure protocol."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import symbolic_shape
from tests.golden import keras
from tests.metrics.subclasses import BITS, LABELS, LOGITS, OTHER, PROBS, N

from exburn import metrics


def spec(*shape, dtype="float32"):
    return jax.ShapeDtypeStruct(symbolic_shape(", ".join(map(str, shape))), dtype)


class Rate(metrics.Metric):
    def __init__(self, name="rate", **kwargs):
        super().__init__(name=name, **kwargs)
        self.hits = self.add_variable(shape=(), initializer="zeros", name="hits")
        self.rows = self.add_weight(name="rows", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        hit = jnp.asarray(y_true == y_pred, "float32")
        weight = 1.0 if sample_weight is None else sample_weight
        self.hits.assign_add(jnp.sum(hit * weight))
        self.rows.assign(self.rows + jnp.sum(jnp.ones_like(hit) * weight))

    def result(self):
        return self.hits / self.rows


def test_variables_work_through_the_pure_protocol():
    metric = Rate()
    metric.build(spec("b", dtype="int32"), spec("b", dtype="int32"))
    state = metric.init()
    assert set(state) == {"hits", "rows"}
    update = jax.jit(metric.update)
    state = update(state, LABELS, LABELS, sample_weight=np.ones(N))
    state = update(state, LABELS, LABELS + 1, sample_weight=np.eye(N)[0])
    assert metric.compute(state) == pytest.approx(N / (N + 1))
    assert float(metric.hits) == 0
    metric.update_state(LABELS, LABELS)
    assert float(metric.result()) == 1
    metric.reset_state()
    assert metric.hits.numpy() == 0
    assert metric.hits.path == "rate/hits"


def test_lazily_made_variables():
    class PerColumn(metrics.Metric):
        def update_state(self, y_true, y_pred, sample_weight=None):
            if not hasattr(self, "total"):
                self.total = self.add_variable((y_pred.shape[-1],), "ones", name="t")
            self.total.assign_add(jnp.sum(y_pred, axis=0))

        def result(self):
            return self.total.value

        def reset_state(self):
            if hasattr(self, "total"):
                self.total.assign(np.full(self.total.shape, 2.0))

    metric = PerColumn()
    metric.build(spec("b", 3), spec("b", 3))
    assert metric.init()["t"].tolist() == [2, 2, 2]
    state = jax.jit(metric.update)(metric.init(), PROBS, PROBS)
    np.testing.assert_allclose(metric.compute(state), 2 + PROBS.sum(0), rtol=1e-6)


def test_metrics_inside_metrics():
    class F1(metrics.Metric):
        def __init__(self, name="f1", **kwargs):
            super().__init__(name=name, **kwargs)
            self.precision = metrics.Precision()
            self.others = [metrics.Recall()]

        def update_state(self, y_true, y_pred, sample_weight=None):
            for metric in (self.precision, *self.others):
                metric.update_state(y_true, y_pred, sample_weight)

        def result(self):
            p, r = self.precision.result(), self.others[0].result()
            return 2 * p * r / (p + r + 1e-7)

    metric, keras_metric = F1(), keras.metrics.F1Score(threshold=0.5)
    y_true, y_pred = BITS[:, :1], OTHER[:, :1]
    metric.build(y_true, y_pred)
    state = jax.jit(metric.update)(metric.init(), y_true, y_pred, np.ones(N))
    keras_metric.update_state(y_true, y_pred)
    np.testing.assert_allclose(
        metric.compute(state), keras_metric.result()[0], rtol=1e-5
    )
    metric.update_state(y_true, y_pred)
    assert len(metric.variables) == 4
    metric.reset_state()
    assert metric.result() == 0


def test_overriding_parts_of_a_built_in_metric():
    class Root(metrics.Mean):
        def update_state(self, y_true, y_pred, sample_weight=None):
            squares = jnp.square(y_true - y_pred)
            super().update_state(squares, sample_weight=sample_weight)

        def result(self):
            return jnp.sqrt(super().result())

    class Percent(metrics.SparseCategoricalAccuracy):
        def result(self):
            return 100 * super().result()

    for metric, y_true, y_pred, expected in (
        (Root(), OTHER, LOGITS, np.sqrt(np.mean((OTHER - LOGITS) ** 2))),
        (Percent(), LABELS, PROBS, 100 * np.mean(LABELS == PROBS.argmax(1))),
    ):
        metric.build(y_true, y_pred)
        state = jax.jit(metric.update)(metric.init(), y_true, y_pred, np.ones(N))
        np.testing.assert_allclose(metric.compute(state), expected, rtol=1e-6)
        metric.update_state(y_true, y_pred)
        np.testing.assert_allclose(metric.result(), expected, rtol=1e-6)


def test_subclasses_compute_with_the_state_or_have_one_of_their_own():
    class Root(metrics.Mean):
        def result(self):
            return jnp.sqrt(self.total / self.count)

    class Found(metrics.Precision):
        def result(self):
            return jnp.sum(self.true_positives)

    class Own(metrics.Mean):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.total = self.add_weight(name="total")

    root, found, own = Root(), Found(), Own()
    root.total.assign(8.0)
    root.count.assign(2.0)
    assert float(root.result()) == 2
    found.update_state([0, 1, 1], [0.9, 0.8, 0.1])
    assert float(found.result()) == 1
    state = found.update(found.init(), jnp.ones(2), jnp.array([0.1, 0.9]))
    assert float(found.compute(state)) == 1
    own.update_state([1.0, 3.0])
    assert float(own.total) == 4
