"""Metrics written in Keras' way, with variables, run through the pure protocol."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from jax.export import symbolic_shape

from exburn import metrics
from exburn.errors import ArgumentError, NotBuiltError, ShapeError

rng = np.random.default_rng(5)
N = 6
LOGITS = rng.normal(size=(N, 3)).astype("float32")
OTHER = rng.normal(size=(N, 3)).astype("float32")
PROBS = rng.dirichlet(np.ones(3), size=N).astype("float32")
LABELS = rng.integers(0, 3, N).astype("int32")
BITS = rng.integers(0, 2, (N, 3)).astype("float32")


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


STATES = [
    ("Mean", (), ("total", "count"), (PROBS,)),
    ("Sum", (), ("total",), (PROBS,)),
    ("BinaryAccuracy", (), ("total", "count"), (BITS, PROBS)),
    ("Precision", ([0.2, 0.5],), ("true_positives", "false_positives"), (BITS, PROBS)),
    ("Recall", (), ("true_positives", "false_negatives"), (BITS, PROBS)),
    ("AUC", (5,), ("true_positives", "true_negatives"), (BITS, PROBS)),
    ("MeanIoU", (3,), ("total_cm",), (LABELS, LABELS[::-1])),
]


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")  # by Keras
@pytest.mark.parametrize(("name", "arguments", "attributes", "data"), STATES)
def test_the_state_has_the_names_of_keras(name, arguments, attributes, data):
    ours, theirs = (getattr(m, name)(*arguments) for m in (metrics, keras.metrics))
    for metric in (ours, theirs):
        metric.update_state(*data)
    for attribute in attributes:
        mine, other = (np.asarray(getattr(m, attribute)) for m in (ours, theirs))
        np.testing.assert_allclose(mine, other, rtol=1e-6)


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


def test_update_state_without_weights():
    class Last(metrics.Metric):
        def __init__(self):
            super().__init__()
            self.value = self.add_variable()

        def update_state(self, y_true, y_pred):
            self.value.assign(y_pred[-1])

        def result(self):
            return self.value.value

    metric = Last()
    assert metric.per_sample is False
    assert metric.compute(metric.update(metric.init(), None, jnp.arange(3.0))) == 2
    with pytest.raises(ArgumentError, match="sample_weight=None"):
        metric.update(metric.init(), np.ones(2), np.ones(2), sample_weight=np.ones(2))


def test_variables_behave_like_arrays():
    metric = metrics.Sum()
    (total,) = metric.variables
    metric.update_state([3.0])
    assert float(total) == 3 and int(total) == 3 and bool(total)
    assert (total + 1, 1 - total, total / 2, -total) == (4, -2, 1.5, -3)
    assert jnp.asarray(total) == 3 and np.asarray(total) == 3
    assert total > 2 and total <= 3
    total.assign_sub(1)
    assert metric.result() == 2
    with pytest.raises(ShapeError):
        total.assign(np.ones(3))


def test_not_initialized():
    class Forgot(metrics.Metric):
        def __init__(self):
            self.add_variable()

    with pytest.raises(NotBuiltError, match="super"):
        Forgot()
    with pytest.raises(NotImplementedError, match="update"):
        metrics.Metric().update_state(1, 2)
