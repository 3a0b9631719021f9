"""What metrics promise beyond their values: purity, padding, Keras' surface, names."""

import inspect

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from jax.export import symbolic_shape

from exburn import losses, metrics
from exburn.errors import (
    ArgumentError,
    DTypeError,
    NotBuiltError,
    ShapeError,
    TargetError,
    UnknownNameError,
)
from exburn.metrics import accuracy

rng = np.random.default_rng(5)
N = 6
LOGITS = rng.normal(size=(N, 3)).astype("float32")
OTHER = rng.normal(size=(N, 3)).astype("float32")
PROBS = rng.dirichlet(np.ones(3), size=N).astype("float32")
LABELS = rng.integers(0, 3, N).astype("int32")
ONE_HOT = np.eye(3, dtype="float32")[LABELS]
BITS = rng.integers(0, 2, (N, 3)).astype("float32")

EVERY = [
    (metrics.Accuracy(), LABELS, LABELS[::-1]),
    (metrics.BinaryAccuracy(threshold=0.4), BITS, PROBS),
    (metrics.CategoricalAccuracy(), ONE_HOT, PROBS),
    (metrics.SparseCategoricalAccuracy(), LABELS, PROBS),
    (metrics.TopKCategoricalAccuracy(k=2), ONE_HOT, PROBS),
    (metrics.SparseTopKCategoricalAccuracy(k=2), LABELS, PROBS),
    (metrics.MeanSquaredError(), OTHER, LOGITS),
    (metrics.RootMeanSquaredError(), OTHER, LOGITS),
    (metrics.MeanAbsoluteError(), OTHER, LOGITS),
    (metrics.MeanAbsolutePercentageError(), OTHER, LOGITS),
    (metrics.MeanSquaredLogarithmicError(), PROBS, PROBS[::-1]),
    (metrics.LogCoshError(), OTHER, LOGITS),
    (metrics.CosineSimilarity(axis=1), OTHER, LOGITS),
    (metrics.R2Score(num_regressors=1), OTHER, LOGITS),
    (metrics.PearsonCorrelation(), OTHER, LOGITS),
    (metrics.PearsonCorrelation(axis=0), OTHER, LOGITS),
    (metrics.ConcordanceCorrelation(axis=0), OTHER, LOGITS),
    (metrics.BinaryCrossentropy(from_logits=True), BITS, LOGITS),
    (metrics.CategoricalCrossentropy(label_smoothing=0.1), ONE_HOT, PROBS),
    (metrics.SparseCategoricalCrossentropy(ignore_class=1), LABELS, PROBS),
    (metrics.KLDivergence(), PROBS[::-1], PROBS),
    (metrics.Poisson(), BITS, PROBS),
    (metrics.Hinge(), BITS, LOGITS),
    (metrics.SquaredHinge(), BITS, LOGITS),
    (metrics.CategoricalHinge(), ONE_HOT, LOGITS),
    (metrics.TruePositives(thresholds=[0.2, 0.5]), BITS, PROBS),
    (metrics.FalsePositives(), BITS, PROBS),
    (metrics.TrueNegatives(), BITS, PROBS),
    (metrics.FalseNegatives(), BITS, PROBS),
    (metrics.Precision(thresholds=0.3, class_id=1), BITS, PROBS),
    (metrics.Recall(top_k=2), BITS, PROBS),
    (metrics.PrecisionAtRecall(0.4, num_thresholds=20), BITS, PROBS),
    (metrics.RecallAtPrecision(0.3), BITS, PROBS),
    (metrics.SensitivityAtSpecificity(0.4), BITS, PROBS),
    (metrics.SpecificityAtSensitivity(0.4), BITS, PROBS),
    (metrics.AUC(curve="PR", thresholds=[0.2, 0.4, 0.5]), BITS, PROBS),
    (metrics.AUC(multi_label=True, label_weights=[1.0, 2.0, 3.0]), BITS, PROBS),
    (metrics.F1Score(average="macro"), ONE_HOT, PROBS),
    (metrics.FBetaScore(beta=2.0, threshold=0.3), BITS, PROBS),
    (metrics.IoU(3, [0, 2]), LABELS, LABELS[::-1]),
    (metrics.BinaryIoU([1], threshold=0.3), BITS, PROBS),
    (metrics.MeanIoU(3, sparse_y_pred=False), LABELS, PROBS),
    (metrics.OneHotIoU(3, [0]), ONE_HOT, PROBS),
    (metrics.OneHotMeanIoU(3), ONE_HOT, PROBS),
    (metrics.MeanMetricWrapper(losses.Huber(delta=0.5)), OTHER, LOGITS),
]
NAMES = [f"{m.name}-{i}" for i, (m, *_) in enumerate(EVERY)]


def spec(*shape, dtype="float32"):
    return jax.ShapeDtypeStruct(symbolic_shape(", ".join(map(str, shape))), dtype)


def fresh(metric):
    return type(metric).from_config(metric.get_config())


@pytest.mark.parametrize(("metric", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_padding_has_no_effect(metric, y_true, y_pred):
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


def test_pure_functions_map_over_many_streams():
    metric = metrics.AUC(num_thresholds=50)
    many = jnp.stack([PROBS, PROBS[::-1]])
    update = lambda p: metric.update(metric.init(), BITS, p)  # noqa: E731
    states = jax.vmap(update)(many)
    values = jax.vmap(metric.compute)(states)
    expected = [metric.compute(update(p)) for p in many]
    np.testing.assert_allclose(values, expected, rtol=1e-6)


@pytest.mark.parametrize(("metric", "y_true", "y_pred"), EVERY[::4], ids=NAMES[::4])
def test_keras_surface(metric, y_true, y_pred):
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


# ------------------------------------------------------------------- functions
def distance(y_true, y_pred):
    return jnp.mean(jnp.abs(y_true - y_pred), axis=-1)


def mean_distance(y_true, y_pred):
    return jnp.mean(jnp.abs(y_true - y_pred))


def test_functions_with_and_without_rows():
    weight = rng.uniform(size=N)
    for function, rows in ((distance, True), (mean_distance, False)):
        metric = metrics.get(function)
        metric.build(spec("b", 3), spec("b", 3))
        assert metric.per_sample is rows
        state = metric.init()
        for part in (slice(0, 4), slice(4, 6)):  # uneven: rows count, not batches
            state = metric.update(state, OTHER[part], LOGITS[part])
        expected = np.mean(np.abs(OTHER - LOGITS))
        np.testing.assert_allclose(metric.compute(state), expected, rtol=1e-6)
    metric = metrics.get(distance)
    metric.update_state(OTHER, LOGITS, weight)
    each = np.abs(OTHER - LOGITS).mean(1)
    np.testing.assert_allclose(
        metric.result(), np.average(each, weights=weight), rtol=1e-6
    )
    with pytest.raises(ShapeError, match="one value per row"):
        metrics.get(lambda t, p: jnp.mean(p, axis=0)).update_state(OTHER, LOGITS)


def test_ignored_class_counts_nowhere():
    """In Keras the metric counts ignored entries as zeros unless there are weights."""
    options = {"from_logits": True, "ignore_class": 1}
    metric = metrics.SparseCategoricalCrossentropy(**options)
    metric.update_state(LABELS, LOGITS)
    loss = losses.SparseCategoricalCrossentropy(**options)
    np.testing.assert_allclose(metric.result(), loss(LABELS, LOGITS), rtol=1e-6)


# ------------------------------------------------------------------- shapes
MISFITS = [
    (metrics.BinaryAccuracy(), spec("b"), spec("b", 3), ShapeError),
    (metrics.MeanSquaredError(), spec("b", 3), spec("b", 1), ShapeError),
    (metrics.RootMeanSquaredError(), spec("b", 3), spec("b", 1), ShapeError),
    (metrics.CategoricalAccuracy(), spec("b"), spec("b", 3), TargetError),
    (metrics.SparseCategoricalAccuracy(), spec("b", 3), spec("b", 3), TargetError),
    (metrics.SparseCategoricalAccuracy(), spec("b"), spec("b", 1), ShapeError),
    (metrics.Precision(), spec("b"), spec("b", 3), ShapeError),
    (metrics.Precision(top_k=4), spec("b", 3), spec("b", 3), ShapeError),
    (metrics.Recall(class_id=3), spec("b", 3), spec("b", 3), ShapeError),
    (metrics.AUC(), spec("b", 1), spec("b", 3), ShapeError),
    (metrics.AUC(multi_label=True), spec("b"), spec("b"), ShapeError),
    (metrics.AUC(label_weights=[1, 2]), spec("b", 3), spec("b", 3), ShapeError),
    (metrics.F1Score(), spec("b"), spec("b", 3), ShapeError),
    (metrics.F1Score(), spec("b", 3, 3), spec("b", 3, 3), ShapeError),
    (metrics.R2Score(), spec("b", 2), spec("b", 1), ShapeError),
    (metrics.IoU(3, [0]), spec("b", 4), spec("b", 5), ShapeError),
    (metrics.MeanIoU(3, sparse_y_pred=False), spec("b", 4), spec("b", 3), ShapeError),
    (metrics.PearsonCorrelation(), spec("b", 1), spec("b", 1), ShapeError),
]


@pytest.mark.parametrize(("metric", "y_true", "y_pred", "error"), MISFITS)
def test_misfits_are_errors(metric, y_true, y_pred, error):
    with pytest.raises(error) as caught:
        metric.build(y_true, y_pred)
    assert len(str(caught.value).splitlines()) <= 12


def test_symbolic_sizes_are_no_misfit():
    metric = metrics.SparseCategoricalAccuracy()
    metric.build(spec("b", "t", dtype="int32"), spec("b", "t", 5))
    metric = metrics.MeanSquaredError()
    metric.build(spec("b", "t"), spec("b", 12))  # t may well be 12


def test_states_that_need_shapes():
    for metric in (metrics.F1Score(), metrics.R2Score(), metrics.AUC(multi_label=True)):
        with pytest.raises(NotBuiltError):
            metric.init()
    with pytest.raises(ShapeError, match="sample_weight"):
        metrics.MeanSquaredError().update_state(OTHER, LOGITS, np.ones(N - 1))


# ------------------------------------------------------------------- numbers
def test_r2_of_data_far_from_zero():
    """Sums of squares of 100,000 ± 1 lose everything in float32."""
    y_true = (1e5 + rng.normal(size=(200, 1))).astype("float32")
    y_pred = (y_true + rng.normal(size=(200, 1)) * 0.1).astype("float32")
    metric = metrics.R2Score()
    for part in np.split(np.arange(200), [70, 75]):
        metric.update_state(y_true[part], y_pred[part])
    expected = 1 - np.sum((y_true - y_pred) ** 2.0) / np.sum(
        (y_true.astype("float64") - y_true.mean(dtype="float64")) ** 2
    )
    assert metric.result() == pytest.approx(expected, rel=1e-3)


def test_r2_of_constant_targets():
    metric = metrics.R2Score()
    metric.update_state(np.ones((4, 1)), np.ones((4, 1)))
    assert metric.result() == 1
    metric.update_state(np.ones((4, 1)), np.zeros((4, 1)))
    assert metric.result() == 0


def test_correlation_of_constants_is_zero():
    value = metrics.pearson_correlation(np.ones((1, 3)), OTHER[:1])
    assert value.tolist() == [0]


# ------------------------------------------------------------------- names
@pytest.mark.parametrize(
    ("y_true", "y_pred", "kind"),
    [
        (spec("b"), spec("b", 10), "SparseCategorical"),
        (spec("b", 1), spec("b", 10), "SparseCategorical"),
        (spec("b", 10), spec("b", 10), "Categorical"),
        (spec("b", 1), spec("b", 1), "Binary"),
        (spec("b"), spec("b", 1), "Binary"),
        (spec("b"), spec("b"), "Binary"),
        (spec("b", "t"), spec("b", "t", 10), "SparseCategorical"),
        (spec("b", "t", 10), spec("b", "t", 10), "Categorical"),
        (spec("b", "t", 1), spec("b", "t", 1), "Binary"),
    ],
)
def test_resolution_by_shapes(y_true, y_pred, kind):
    for name in ("accuracy", "acc"):
        metric = metrics.resolve(name, y_true, y_pred)
        assert (type(metric).__name__, metric.name) == (f"{kind}Accuracy", name)
        metric.build(y_true, y_pred)
    for name in ("crossentropy", "ce"):
        metric = metrics.resolve(name, y_true, y_pred)
        assert (type(metric).__name__, metric.name) == (f"{kind}Crossentropy", name)


def test_resolution_of_other_things():
    y = spec("b", 3)
    assert metrics.resolve("mse", y, y).name == "mse"
    assert metrics.resolve(metrics.Precision, y, y).name == "precision"
    assert metrics.resolve(distance, y, y).name == "distance"
    assert metrics.resolve(losses.Huber(), y, y).name == "huber_loss"
    with pytest.raises(ShapeError, match="accuracy"):
        metrics.resolve("accuracy", spec("b", 4), y)
    with pytest.raises(ArgumentError, match="averages values"):
        metrics.resolve(metrics.Mean(), y, y)


def test_unknown_names():
    for call in (metrics.get, metrics.check_name):
        with pytest.raises(UnknownNameError, match="Did you mean 'precision'"):
            call("precison")
    with pytest.raises(ArgumentError, match="num_classes"):
        metrics.get("MeanIoU")
    with pytest.raises(DTypeError):
        metrics.get(1.5)
    for name in ("accuracy", "ACC", "mse", "AUC", "huber", "binary_accuracy"):
        metrics.check_name(name)
    assert metrics.get(None) is None


@pytest.mark.parametrize(("metric", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_config_round_trip(metric, y_true, y_pred):
    config = {**metric.get_config(), "name": "mine"}
    metric = type(metric).from_config(config)
    again = metrics.deserialize(metrics.serialize(metric))
    assert type(again) is type(metric)
    assert again.get_config() == metric.get_config()
    assert again.name == "mine"


def test_function_metrics_round_trip():
    config = metrics.serialize(metrics.MeanMetricWrapper(distance, name="d"))
    again = metrics.deserialize(config, {"distance": distance})
    again.update_state(OTHER, LOGITS)
    assert again.name == "d" and again.result() > 0
    known = metrics.serialize(metrics.get("huber"))
    assert metrics.deserialize(known).get_config() == known["config"]


def test_every_name_of_keras():
    for name in dir(keras.metrics):
        if name.startswith("_") or name in ("KLD", "kld"):
            continue
        theirs, ours = getattr(keras.metrics, name), getattr(metrics, name)
        names = list(inspect.signature(theirs).parameters)
        if name == "Metric":  # (name, dtype), the order that all of its subclasses have
            names = names[::-1]
        assert list(inspect.signature(ours).parameters)[: len(names)] == names, name
        parameters = inspect.signature(theirs).parameters.values()
        if inspect.isclass(theirs) and all(
            p.default is not p.empty for p in parameters
        ):
            mine = inspect.signature(ours).parameters
            for p in parameters:
                if p.name != "name" or p.default is not None:
                    assert mine[p.name].default == p.default, (name, p.name)


@pytest.mark.parametrize(
    "make",
    [
        lambda: metrics.Precision(thresholds=1.5),
        lambda: metrics.Recall(thresholds=[]),
        lambda: metrics.AUC(num_thresholds=1),
        lambda: metrics.AUC(curve="lift"),
        lambda: metrics.AUC(num_labels=3),
        lambda: metrics.PrecisionAtRecall(2),
        lambda: metrics.F1Score(average="mean"),
        lambda: metrics.FBetaScore(beta=0.0),
        lambda: metrics.F1Score(threshold=0),
        lambda: metrics.IoU(2, [2]),
        lambda: metrics.R2Score(class_aggregation="sum"),
        lambda: metrics.TopKCategoricalAccuracy(k=0),
        lambda: metrics.MeanMetricWrapper("mse"),
    ],
)
def test_impossible_options(make):
    with pytest.raises(ArgumentError):
        make()


def test_accuracies_of_arrays_are_one_call_outside_of_programs(monkeypatch):
    compiled, calls = accuracy._is_highest_eagerly, []
    monkeypatch.setattr(
        accuracy, "_is_highest_eagerly", lambda *a: calls.append(a) or compiled(*a)
    )
    metric = metrics.SparseCategoricalAccuracy()
    labels, scores = np.array([0, 1]), np.array([[0.9, 0.1], [0.8, 0.2]])
    metric.update_state(labels, scores)
    assert float(metric.result()) == 0.5 and len(calls) == 1
    inside = jax.jit(metric.stateless_update_state)
    assert float(metric.stateless_result(inside([0.0, 0.0], labels, scores))) == 0.5
    assert len(calls) == 1
