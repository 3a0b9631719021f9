import numpy as np
import pytest

import exburn
from exburn import layers, metrics
from exburn.errors import ShapeError

RNG = np.random.default_rng(0)
LENGTHS = RNG.integers(1, 30, 90)
ROWS = [RNG.normal(size=(n, 3)).astype(np.float32) for n in LENGTHS]
CLASSES = [RNG.integers(0, 3, n) for n in LENGTHS]
HALVES = [(RNG.random((n, 1)) < 0.4).astype(np.float32) for n in LENGTHS]
WEIGHTS = RNG.random(90).astype(np.float32)


def model_of(units, activation, loss, **options):
    exburn.set_random_seed(0)
    model = exburn.Sequential([layers.Dense(units, activation=activation)])
    model.compile("sgd", loss, **options)
    return model


def beside_positions(model, targets, metric, weight=None):
    """The value that ``evaluate`` tells, and that of all positions as rows."""
    outputs = np.concatenate(model.predict(ROWS, verbose=0))
    options = {} if weight is None else {"sample_weight": weight}
    logs = model.evaluate(
        ROWS, targets, batch_size=8, verbose=0, return_dict=True, **options
    )
    metric.reset_state()
    if weight is not None:
        options = {"sample_weight": np.repeat(weight, LENGTHS)}
    metric.update_state(np.concatenate(targets), outputs, **options)
    return logs[metric.name], float(metric.result())


@pytest.mark.parametrize(
    "make",
    [
        metrics.SparseCategoricalAccuracy,
        metrics.SparseCategoricalCrossentropy,
        lambda: metrics.SparseTopKCategoricalAccuracy(2),
    ],
)
def test_metrics_of_classes_count_each_position_once(make):
    model = model_of(3, "softmax", "sparse_categorical_crossentropy", metrics=[make()])
    results, expected = beside_positions(model, CLASSES, make())
    assert results == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        metrics.BinaryAccuracy,
        metrics.AUC,
        metrics.Precision,
        metrics.Recall,
        metrics.MeanSquaredError,
        metrics.RootMeanSquaredError,
        metrics.MeanAbsoluteError,
    ],
)
@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["", "weights"])
def test_metrics_of_numbers_count_each_position_once(make, weight):
    kind = "metrics" if weight is None else "weighted_metrics"
    model = model_of(1, "sigmoid", "binary_crossentropy", **{kind: [make()]})
    results, expected = beside_positions(model, HALVES, make(), weight)
    assert results == pytest.approx(expected, rel=1e-5)


def test_a_function_of_the_users_counts_each_position_once():
    def distance(y_true, y_pred):
        return abs(y_true - y_pred)[..., 0]

    model = model_of(1, "sigmoid", "mse", metrics=[distance])
    results, expected = beside_positions(
        model, HALVES, metrics.MeanMetricWrapper(distance, name="distance")
    )
    assert results == pytest.approx(expected, rel=1e-5)


def test_fit_logs_means_over_all_positions():
    model = model_of(
        3, "softmax", "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    model.compile(
        exburn.optimizers.SGD(0.0),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    logs = model.fit(ROWS, CLASSES, batch_size=8, verbose=0).history
    outputs = np.concatenate(model.predict(ROWS, verbose=0))
    flat = np.concatenate(CLASSES)
    assert logs["accuracy"][0] == pytest.approx((outputs.argmax(1) == flat).mean())
    loss = -np.log(outputs[np.arange(len(flat)), flat]).mean()
    assert logs["loss"][0] == pytest.approx(loss, rel=1e-5)


def test_what_has_one_value_for_a_row_is_refused():
    def of_rows(y_true, y_pred):
        return abs(y_true - y_pred)[..., 0].mean(-1)

    model = model_of(1, None, of_rows)
    with pytest.raises(ShapeError, match="one value for a row"):
        model.fit(ROWS, HALVES, verbose=0)
    model = model_of(1, None, "mse", metrics=[of_rows])
    with pytest.raises(ShapeError, match="one value for a row"):
        model.evaluate(ROWS, HALVES, verbose=0)


@pytest.mark.parametrize("make", [metrics.R2Score, metrics.PearsonCorrelation])
def test_what_compares_along_rows_is_refused(make):
    with pytest.raises(ShapeError):
        model = model_of(1, None, "mse", metrics=[make()])
        model.evaluate(ROWS, HALVES, batch_size=8, verbose=0)
