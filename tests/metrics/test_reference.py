"""Every metric against Keras, over streams of uneven batches, with and without weights.

Ours run through the pure functions under ``jit``: the way training uses them.
"""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

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

CASES = [
    ("Accuracy", {}, LABELS, stream(integers(4))),
    ("BinaryAccuracy", {}, BITS_1, UNIT_1),
    ("BinaryAccuracy", {"threshold": 0.3}, BITS, UNIT),
    ("CategoricalAccuracy", {}, ONE_HOT, PROBS),
    ("SparseCategoricalAccuracy", {}, LABELS, PROBS),
    ("SparseCategoricalAccuracy", {}, [v[:, None] for v in LABELS], PROBS),
    ("TopKCategoricalAccuracy", {"k": 2}, ONE_HOT, PROBS),
    ("SparseTopKCategoricalAccuracy", {"k": 2}, LABELS, PROBS),
    ("SparseTopKCategoricalAccuracy", {"k": 2, "from_sorted_ids": True}, LABELS, IDS),
    ("MeanSquaredError", {}, REAL, REAL_2),
    ("RootMeanSquaredError", {}, REAL, REAL_2),
    ("MeanAbsoluteError", {}, REAL, REAL_2),
    ("MeanAbsolutePercentageError", {}, UNIT, REAL),
    ("MeanSquaredLogarithmicError", {}, UNIT, PROBS),
    ("LogCoshError", {}, REAL, REAL_2),
    ("CosineSimilarity", {}, REAL, REAL_2),
    ("R2Score", {}, REAL, REAL_2),
    ("R2Score", {"class_aggregation": None}, REAL, REAL_2),
    ("R2Score", {"class_aggregation": "variance_weighted_average"}, REAL, REAL_2),
    ("R2Score", {"num_regressors": 2}, UNIT_1, stream(uniform(1))),
    ("PearsonCorrelation", {}, REAL, REAL_2),
    ("ConcordanceCorrelation", {}, REAL, REAL_2),
    ("BinaryCrossentropy", {}, BITS, UNIT),
    ("BinaryCrossentropy", {"from_logits": True, "label_smoothing": 0.1}, BITS, REAL),
    ("CategoricalCrossentropy", {"label_smoothing": 0.1}, ONE_HOT, PROBS),
    ("SparseCategoricalCrossentropy", {}, LABELS, PROBS),
    ("SparseCategoricalCrossentropy", {"from_logits": True}, LABELS, REAL),
    ("KLDivergence", {}, PROBS, PROBS_2),
    ("Poisson", {}, BITS, UNIT),
    ("Hinge", {}, BITS, REAL),
    ("SquaredHinge", {}, BITS, REAL),
    ("CategoricalHinge", {}, ONE_HOT, REAL),
    ("TruePositives", {}, BITS_FLAT, UNIT_FLAT),
    ("TruePositives", {"thresholds": [0.2, 0.7]}, BITS, UNIT),
    ("FalsePositives", {"thresholds": [0.7, 0.2, 0.3]}, BITS, UNIT),
    ("TrueNegatives", {"thresholds": [0.0, 0.5, 1.0]}, BITS, UNIT),
    ("FalseNegatives", {}, BITS_1, UNIT_1),
    ("FalseNegatives", {"thresholds": [i / 20 for i in range(21)]}, BITS, UNIT),
    ("Precision", {}, BITS, UNIT),
    ("Precision", {"thresholds": [0.3, 0.6]}, BITS, UNIT),
    ("Precision", {"top_k": 2}, ONE_HOT, PROBS),
    ("Precision", {"top_k": 2, "class_id": 1}, ONE_HOT, PROBS),
    ("Recall", {"class_id": 2}, BITS, UNIT),
    ("Recall", {"thresholds": 0.4}, BITS_1, UNIT_1),
    ("Recall", {"top_k": 1}, ONE_HOT, REAL),
    ("PrecisionAtRecall", {"recall": 0.6}, BITS, UNIT),
    ("RecallAtPrecision", {"precision": 0.6, "num_thresholds": 11}, BITS, UNIT),
    ("SensitivityAtSpecificity", {"specificity": 0.6}, BITS, UNIT),
    ("SensitivityAtSpecificity", {"specificity": 0.2, "num_thresholds": 1}, BITS, UNIT),
    ("SpecificityAtSensitivity", {"sensitivity": 0.6, "class_id": 0}, BITS, UNIT),
    ("AUC", {}, BITS_FLAT, UNIT_FLAT),
    ("AUC", {"curve": "PR"}, BITS_1, UNIT_1),
    ("AUC", {"curve": "PRGAIN"}, BITS, UNIT),
    ("AUC", {"curve": "PR", "summation_method": "minoring"}, BITS, UNIT),
    ("AUC", {"summation_method": "majoring", "from_logits": True}, BITS, REAL),
    ("AUC", {"thresholds": [0.1, 0.25, 0.9]}, BITS, UNIT),
    ("AUC", {"multi_label": True, "num_labels": 4}, BITS, UNIT),
    ("AUC", {"multi_label": True, "curve": "PR"}, BITS, UNIT),
    (
        "AUC",
        {"multi_label": True, "num_labels": 4, "label_weights": [1.0, 2.0, 0.0, 3.0]},
        BITS,
        UNIT,
    ),
    ("AUC", {"label_weights": [1.0, 2.0, 0.0, 3.0]}, BITS, UNIT),
    ("F1Score", {}, ONE_HOT, PROBS),
    ("F1Score", {"threshold": 0.4, "average": "macro"}, BITS, UNIT),
    ("FBetaScore", {"beta": 2.0, "average": "micro", "threshold": 0.4}, BITS, UNIT),
    ("FBetaScore", {"beta": 0.5, "average": "weighted"}, ONE_HOT, PROBS),
    ("IoU", {"num_classes": 4, "target_class_ids": [0, 2]}, MAP, MAP_2),
    ("MeanIoU", {"num_classes": 4, "ignore_class": 3}, MAP, MAP_2),
    ("MeanIoU", {"num_classes": 4, "sparse_y_pred": False}, MAP, MAP_SCORES),
    ("OneHotIoU", {"num_classes": 4, "target_class_ids": [1]}, MAP_ONE_HOT, MAP_SCORES),
    ("OneHotMeanIoU", {"num_classes": 4}, MAP_ONE_HOT, MAP_SCORES),
    ("BinaryIoU", {"threshold": 0.4}, MAP_BITS, MAP_UNIT),
]


UNWEIGHTED = list({case[0]: case for case in CASES}.values())[::3]  # of each kind one


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


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")  # Keras' own
@pytest.mark.parametrize(
    ("name", "options", "y_true", "y_pred", "weighted"),
    [(*case, True) for case in CASES] + [(*case, False) for case in UNWEIGHTED],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_streams(name, options, y_true, y_pred, weighted):
    ours = getattr(metrics, name)(**options)
    # By default Keras' IoU cuts float weights to whole numbers.
    theirs = getattr(keras.metrics, name)(**options, dtype="float32")
    assert ours.name == theirs.name.rstrip("_0123456789") or ours.name == "f1_score"
    weights = entries = ROWS if weighted else [None] * len(BATCHES)
    if "IoU" in name and weighted:  # Keras wants a weight for each entry
        entries = [np.broadcast_to(w[:, None, None], (len(w), 3, 3)) for w in weights]
    ours.build(y_true[0], y_pred[0])
    jax.eval_shape(theirs.update_state, y_true[0], y_pred[0])  # some make variables
    mine = list(zip(y_true, y_pred, weights, strict=True))
    keras_own = list(zip(y_true, y_pred, entries, strict=True))
    run = jax.jit(lambda a, b: (accumulated(ours, a), reference(theirs, b)))
    value, expected = run(mine, keras_own)
    if needs_eager_result(theirs):
        for variable, array in zip(theirs.variables, expected, strict=True):
            variable.assign(array)
        expected = theirs.result()
    assert value.shape == expected.shape
    np.testing.assert_allclose(value, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("weights", [None, ROWS, UNIT], ids=["none", "rows", "entries"])
@pytest.mark.parametrize("name", ["Mean", "Sum"])
def test_reductions(name, weights):
    ours, theirs = getattr(metrics, name)(), getattr(keras.metrics, name)()
    for i, values in enumerate(REAL):
        weight = None if weights is None else weights[i]
        if name == "Sum" and weights is ROWS:
            weight = weight[:, None]
        ours.update_state(values, weight)
        theirs.update_state(values, sample_weight=weight)
    np.testing.assert_allclose(ours.result(), theirs.result(), rtol=1e-5)


def test_sequences_with_weights_for_each_step():
    labels, scores = rng.integers(0, 4, (3, 6)), rng.normal(size=(3, 6, 4))
    weight = rng.uniform(size=(3, 6)).astype("float32")
    ours = metrics.SparseCategoricalAccuracy()
    theirs = keras.metrics.SparseCategoricalAccuracy()
    ours.update_state(labels, scores, weight)
    theirs.update_state(labels, scores, weight)
    np.testing.assert_allclose(ours.result(), theirs.result(), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "y_true", "y_pred", "options"),
    [
        ("binary_accuracy", BITS[0], UNIT[0], {"threshold": 0.3}),
        ("categorical_accuracy", ONE_HOT[0], PROBS[0], {}),
        ("sparse_categorical_accuracy", LABELS[0], PROBS[0], {}),
        ("top_k_categorical_accuracy", ONE_HOT[0], PROBS[0], {"k": 2}),
        ("sparse_top_k_categorical_accuracy", LABELS[0], PROBS[0], {"k": 2}),
        ("pearson_correlation", REAL[0], REAL_2[0], {}),
        ("concordance_correlation", REAL[0], REAL_2[0], {"axis": 0}),
    ],
)
def test_functions(name, y_true, y_pred, options):
    expected = getattr(keras.metrics, name)(y_true, y_pred, **options)
    value = getattr(metrics, name)(y_true, y_pred, **options)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)
