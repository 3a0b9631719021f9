"""The page's section "Losses and metrics"."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.from_keras.page import says
from tests.from_keras.small import BOTH, X, Y, compiled, evaluate, fit

import exburn
from exburn.errors import ArgumentError, ShapeError, TargetError

keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras'
each = pytest.mark.parametrize("framework", BOTH)

RNG = np.random.default_rng(1)
A, B = RNG.random((2, 6, 3)).astype("float32")
STEPS_A, STEPS_B = RNG.random((2, 6, 4, 3)).astype("float32")
WEIGHTS = np.arange(6).astype("float32")
P = A / A.sum(1, keepdims=True)
ONES = [np.ones((4, 1), "float32"), np.zeros(1, "float32")]


def measured(metric, *args, **kwargs):
    metric.update_state(*args, **kwargs)
    return float(metric.result())


# ------------------------------------------------------------------------- losses
@says("Losses compute in float32 at least")
@each
def test_the_dtype_of_losses(framework):
    loss = framework.losses.MeanSquaredError(dtype="float16")(A, B)
    expected = "float32" if framework is exburn else "float16"
    assert str(loss.dtype) == expected


@says("`metrics.get(function)` wraps the function in a metric")
@each
def test_metrics_of_functions(framework):
    def gap(y_true, y_pred):
        return abs(y_true - y_pred)

    metric = framework.metrics.get(gap)
    if framework is exburn:
        assert measured(metric, A, B) == pytest.approx(abs(A - B).mean())
    else:
        assert metric is gap


@says("`[batch]` weights are weights of rows")
def test_weights_of_rows():
    squares = (A[:, 0] - B[:, 0]) ** 2
    ours, theirs = (
        f.losses.MeanSquaredError()(A[:, 0], B[:, 0], WEIGHTS) for f in BOTH
    )
    assert float(ours) == pytest.approx((squares * WEIGHTS).mean(), rel=1e-5)
    assert float(theirs) == pytest.approx(squares.mean() * WEIGHTS.mean(), rel=1e-5)

    ours, theirs = (f.losses.MeanSquaredError() for f in BOTH)
    values = ((STEPS_A - STEPS_B) ** 2).mean(-1)
    expected = (values * WEIGHTS[:, None]).mean()
    assert float(ours(STEPS_A, STEPS_B, WEIGHTS)) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="broadcasting"):
        theirs(STEPS_A, STEPS_B, WEIGHTS)


@says("`mean_with_sample_weight` divides by the weights as broadcast")
def test_the_mean_with_sample_weight():
    """Each of the four steps has its row's weight: Keras counts it once."""
    values = ((STEPS_A - STEPS_B) ** 2).mean(-1) * WEIGHTS[:, None]
    for framework, count in zip(BOTH, (4, 1), strict=True):
        loss = framework.losses.MeanSquaredError(reduction="mean_with_sample_weight")
        got = float(loss(STEPS_A, STEPS_B, WEIGHTS[:, None]))
        assert got == pytest.approx(values.sum() / (count * WEIGHTS.sum()), rel=1e-5)


@says("Labels out of range are a `TargetError` before training")
def test_labels_out_of_range():
    labels = np.array([0, 1, 5])
    ours, theirs = (
        np.asarray(f.losses.sparse_categorical_crossentropy(labels, jnp.asarray(A[:3])))
        for f in BOTH
    )
    np.testing.assert_allclose(ours[:2], theirs[:2], 1e-5)
    assert np.isnan(ours[2]) and theirs[2] == 0
    stack = exburn.layers.Dense(3)
    model = compiled(exburn, stack, loss="sparse_categorical_crossentropy")
    with pytest.raises(TargetError, match="whole numbers from 0 to 2"):
        fit(model, X, np.full(48, 5))


@says("Hinge reads each label 0 as −1")
@pytest.mark.parametrize("labels", [[0, 1, 0], [0, 1, -1]])
def test_labels_of_hinge(labels):
    y = np.array([labels], "float32")
    ours, theirs = (
        np.asarray(f.losses.hinge(jnp.asarray(y), jnp.asarray(A[:1]))) for f in BOTH
    )
    signs = np.where(y == 0, -1, y)
    np.testing.assert_allclose(ours, np.maximum(1 - signs * A[:1], 0).mean(-1), 1e-5)
    signs = y if -1 in labels else signs
    np.testing.assert_allclose(theirs, np.maximum(1 - signs * A[:1], 0).mean(-1), 1e-5)


@says("over the batch refuse `sample_weight`")
@pytest.mark.parametrize("name", ["Dice", "Tversky"])
def test_sums_over_the_batch_take_no_weights(name):
    ours, theirs = (getattr(f.losses, name) for f in BOTH)
    with pytest.raises(ShapeError, match="rows cannot be weighted"):
        ours()(A.round(), B, WEIGHTS)
    mean = float(theirs()(A.round(), B))
    assert float(theirs()(A.round(), B, WEIGHTS)) == pytest.approx(2.5 * mean)
    by_row = [float(loss(axis=1)(A.round(), B, WEIGHTS)) for loss in (ours, theirs)]
    assert by_row[0] == pytest.approx(by_row[1], rel=1e-5)


@says("over the batch refuse `sample_weight`")
def test_alpha_and_beta_of_tversky():
    ours, theirs = (float(f.losses.Tversky(0.3, 0.9)(A.round(), B)) for f in BOTH)
    assert ours == pytest.approx(theirs, rel=1e-5)


# ----------------------------------------------------------------------------- masks
IDS = np.array([[1, 2, 0, 0], [3, 0, 0, 0], [1, 2, 3, 4]])
TARGETS = RNG.random((3, 4, 1)).astype("float32")
MASK = IDS > 0


def behind_a_mask(framework, loss, metric):
    """The logs of a model that returns ones, with a mask of its steps."""
    ids = framework.Input((4,), dtype="int32")
    ones = framework.layers.Embedding(5, 1, "ones", mask_zero=True)(ids)
    model = framework.Model(ids, ones)
    model.compile(
        "sgd",
        loss,
        metrics=[metric()],
        weighted_metrics=[metric()],
        run_eagerly=framework is keras,
    )
    logs = model.evaluate(IDS, TARGETS, verbose=0, return_dict=True)
    return logs.pop("loss"), *logs.values()


@says("counts in all metrics; in Keras in those that are means of a function")
@each
def test_masks_count_in_metrics(framework):
    squares = ((1 - TARGETS) ** 2)[..., 0]
    masked = squares[MASK].mean()
    found = behind_a_mask(framework, "mse", framework.metrics.MeanSquaredError)
    assert found == pytest.approx([masked] * 3, rel=1e-5)
    root = framework.metrics.RootMeanSquaredError
    expected = masked if framework is exburn else squares.mean()
    found = behind_a_mask(framework, "mse", root)[1:]
    assert found == pytest.approx([np.sqrt(expected)] * 2, rel=1e-5)


@says("counts in all metrics; in Keras in those that are means of a function")
@each
def test_a_value_for_each_row_behind_a_mask_of_steps(framework):
    def rows(y_true, y_pred):
        return framework.ops.mean((y_true - y_pred) ** 2, axis=(1, 2))

    def column(y_true, y_pred):
        return rows(y_true, y_pred)[:, None]

    values, counts = ((1 - TARGETS) ** 2).mean((1, 2)), MASK.sum(1)
    weighed = (values * counts).sum() / counts.sum()

    def loss_of(function):
        def metric():
            return framework.metrics.MeanMetricWrapper(rows, name="rows")

        if framework is exburn:
            return behind_a_mask(framework, function, metric)
        plain = framework.metrics.RootMeanSquaredError
        return behind_a_mask(framework, function, plain)

    if framework is exburn:
        found = loss_of(rows)
        assert found == pytest.approx([weighed, values.mean(), values.mean()], rel=1e-5)
    else:
        with pytest.raises(ValueError, match="broadcasting"):
            loss_of(rows)
    assert loss_of(column)[0] == pytest.approx(weighed, rel=1e-5)


# ----------------------------------------------------------------------------- metrics
@says("take weights as they are; Keras cuts them to integers")
@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")
def test_weights_of_intersections():
    true, predicted, weights = [0, 1, 1, 0], [0, 1, 0, 0], [0.5, 0.7, 0.9, 0.3]
    ours, theirs = (
        measured(f.metrics.MeanIoU(2), true, predicted, sample_weight=weights)
        for f in BOTH
    )
    assert ours == pytest.approx((0.8 / 1.7 + 0.7 / 1.6) / 2, rel=1e-5)
    assert theirs == 0


@says("A correlation along an axis of one value is an error")
@pytest.mark.parametrize("name", ["PearsonCorrelation", "ConcordanceCorrelation"])
def test_correlations_of_one_value(name):
    ours, theirs = (getattr(f.metrics, name)() for f in BOTH)
    with pytest.raises(ShapeError, match="at least 2 values"):
        ours.update_state(A[:, :1], B[:, :1])
    value = measured(theirs, A[:, :1], B[:, :1])
    assert np.isnan(value) if name == "PearsonCorrelation" else value == 0


@says("A correlation along an axis of one value is an error")
@pytest.mark.filterwarnings("ignore:In loss categorical_crossentropy")
@pytest.mark.parametrize("part", ["losses", "metrics"])
def test_predictions_of_one_class(part):
    ones = np.ones((4, 1), "float32")
    for framework in BOTH:
        crossentropy = getattr(framework, part).CategoricalCrossentropy()
        call = crossentropy if part == "losses" else crossentropy.update_state
        if framework is exburn:
            with pytest.raises(ShapeError, match="one class only"):
                call(ones, 0.7 * ones)
        else:
            call(ones, 0.7 * ones)


@says("leaves ignored entries out of its mean, as the loss does")
def test_an_ignored_class():
    labels = np.array([0, 1, 2, 0, 1, 2])
    values = -np.log(P[np.arange(6), labels])
    kept = values[labels != 0]
    for framework in BOTH:

        def metric(framework=framework):
            return framework.metrics.SparseCategoricalCrossentropy(ignore_class=0)

        plain, weighed = (
            measured(metric(), labels, P, sample_weight=w) for w in (None, np.ones(6))
        )
        count = 4 if framework is exburn else 6
        assert plain == pytest.approx(kept.sum() / count, rel=1e-5)
        assert weighed == pytest.approx(kept.mean(), rel=1e-5)
    loss = exburn.losses.SparseCategoricalCrossentropy(ignore_class=0)
    assert float(loss(labels, P)) == pytest.approx(kept.mean(), rel=1e-5)


@says("Scalar metric functions weigh batches by their rows")
@each
def test_scalar_metrics(framework):
    def gap(y_true, y_pred):
        return framework.ops.mean(abs(y_true - y_pred))

    model = compiled(framework, metrics=[gap])
    model.set_weights(ONES)
    found = evaluate(model, X, 2 * Y, batch_size=40)[1]
    means = abs(Y[:40]).mean(), abs(Y[40:]).mean()
    weights = (40, 8) if framework is exburn else (1, 1)
    assert found == pytest.approx(np.average(means, weights=weights), rel=1e-5)


@says("R2Score is 1 or 0 for constant targets, Pearson 0")
def test_scores_of_constant_targets():
    constant = np.ones((4, 3), "float32")
    ours, theirs = (measured(f.metrics.R2Score(), constant, constant) for f in BOTH)
    assert ours == 1 and np.isnan(theirs)
    ours, theirs = (measured(f.metrics.R2Score(), constant, B[:4]) for f in BOTH)
    assert ours == theirs == 0
    ours, theirs = (
        measured(f.metrics.PearsonCorrelation(), constant, B[:4]) for f in BOTH
    )
    assert ours == 0 and np.isnan(theirs)


@says("adjusts by the number of rows (Keras counts rows times outputs)")
def test_the_adjusted_score():
    plain = measured(exburn.metrics.R2Score(), A, B)
    for framework, count in zip(BOTH, (6, 18), strict=True):
        found = measured(framework.metrics.R2Score(num_regressors=2), A, B)
        expected = 1 - (1 - plain) * (count - 1) / (count - 2 - 1)
        assert found == pytest.approx(expected, rel=1e-4)


@says("Confusion metrics keep histograms")
@each
def test_counts_of_confusion_metrics(framework):
    metric = framework.metrics.AUC(num_thresholds=5)
    assert measured(metric, [0, 1, 1, 0], [0.1, 0.6, 0.4, 0.3]) == 0.875
    np.testing.assert_array_equal(np.asarray(metric.true_positives), [2, 2, 1, 0, 0])
    names = ["positives", "negatives"]
    if framework is keras:
        names = [f"{truth}_{n}" for n in names for truth in ("true", "false")]
    assert sorted(v.name for v in metric.variables) == sorted(names)


@says("`Mean` and `Sum` cannot be metrics of `compile`")
@pytest.mark.parametrize("name", ["Mean", "Sum"])
def test_metrics_that_take_no_targets(name):
    with pytest.raises(ArgumentError, match=f"{name} averages values"):
        fit(compiled(exburn, metrics=[getattr(exburn.metrics, name)()]))
    model = compiled(keras, metrics=[getattr(keras.metrics, name)()])
    with pytest.raises(TypeError, match="sample_weight"):
        fit(model)


# --------------------------------------------------------------------- of one's own
@says("A loss function may return one value per sample, or a scalar")
@pytest.mark.parametrize("axis", [-1, None])
def test_what_a_loss_function_returns(axis):
    """Of 48 rows in batches of 20, the last batch has 8."""
    values = []
    for framework in BOTH:

        def loss(y_true, y_pred, framework=framework):
            return framework.ops.mean((y_true - y_pred) ** 2, axis=axis)

        model = compiled(framework, loss=loss)
        model.set_weights(ONES)
        values.append(evaluate(model, X, 2 * Y, batch_size=20))
        if framework is exburn:
            model.fit(X, Y, batch_size=20, verbose=0)
            assert model.trace_counts["train"] == (1 if axis == -1 else 2)
    assert values == pytest.approx([(Y**2).mean()] * 2, rel=1e-5)


@says("A loss function whose parameters are called `predictions, targets`")
@each
def test_the_order_of_optax(framework):
    def loss(predictions, targets):
        return (2 * predictions - targets) ** 2

    model = compiled(framework, loss=loss)
    model.set_weights(ONES)
    factor = 2 - 3 if framework is exburn else 2 * 3 - 1
    expected = factor**2 * (Y**2).mean()
    assert evaluate(model, X, 3 * Y) == pytest.approx(expected, rel=1e-5)


class Largest(exburn.metrics.Metric):
    def init(self):
        return {"top": np.zeros((), np.float32)}

    def update(self, state, y_true, y_pred, sample_weight=None):
        return {"top": jnp.maximum(state["top"], jnp.max(y_pred))}

    def compute(self, state):
        return state["top"]


def largest_of_keras(framework):
    class Largest(framework.metrics.Metric):
        def __init__(self, **kwargs):
            super().__init__(name="largest", **kwargs)
            self.top = self.add_variable((), initializer="zeros", name="top")

        def update_state(self, y_true, y_pred, sample_weight=None):
            top = framework.ops.max(y_pred)
            self.top.assign(framework.ops.maximum(self.top, top))

        def result(self):
            return self.top.value

    return Largest()


@says("A metric may be written with variables, as in Keras")
def test_two_ways_to_write_a_metric():
    metrics = [
        (exburn, Largest()),
        (exburn, largest_of_keras(exburn)),
        (keras, largest_of_keras(keras)),
    ]
    for framework, metric in metrics:
        model = compiled(framework, metrics=[metric])
        model.set_weights(ONES)
        found = evaluate(model, X, 2 * Y, return_dict=True)
        assert found["largest"] == pytest.approx(Y.max(), rel=1e-5)
