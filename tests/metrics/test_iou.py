"""Tests of ``exburn.metrics.iou``."""

import numpy as np
import pytest
from sklearn import metrics as sk
from tests.metrics.protocol import (
    BITS,
    LABELS,
    ONE_HOT,
    PROBS,
    check_config_round_trip,
    check_keras_surface,
    check_padding_has_no_effect,
    spec,
)
from tests.metrics.reference import (
    MAP,
    MAP_2,
    MAP_BITS,
    MAP_ONE_HOT,
    MAP_SCORES,
    MAP_UNIT,
    check_streams,
)
from tests.metrics.subclasses import LABELS as LABELS_SUBCLASSES
from tests.metrics.subclasses import check_the_state_has_the_names_of_keras
from tests.metrics.with_sklearn import CHOSEN, value, weighted
from tests.metrics.with_sklearn import LABELS as LABELS_SKLEARN

from exburn import metrics
from exburn.errors import (
    ArgumentError,
    ShapeError,
)

EVERY = [
    (metrics.IoU(3, [0, 2]), LABELS, LABELS[::-1]),
    (metrics.BinaryIoU([1], threshold=0.3), BITS, PROBS),
    (metrics.MeanIoU(3, sparse_y_pred=False), LABELS, PROBS),
    (metrics.OneHotIoU(3, [0]), ONE_HOT, PROBS),
    (metrics.OneHotMeanIoU(3), ONE_HOT, PROBS),
]

NAMES = [f"{m.name}-{i}" for i, (m, *_) in enumerate(EVERY)]

MISFITS = [
    (metrics.IoU(3, [0]), spec("b", 4), spec("b", 5), ShapeError),
    (metrics.MeanIoU(3, sparse_y_pred=False), spec("b", 4), spec("b", 3), ShapeError),
]

CASES = [
    ("IoU", {"num_classes": 4, "target_class_ids": [0, 2]}, MAP, MAP_2),
    ("MeanIoU", {"num_classes": 4, "ignore_class": 3}, MAP, MAP_2),
    ("MeanIoU", {"num_classes": 4, "sparse_y_pred": False}, MAP, MAP_SCORES),
    ("OneHotIoU", {"num_classes": 4, "target_class_ids": [1]}, MAP_ONE_HOT, MAP_SCORES),
    ("OneHotMeanIoU", {"num_classes": 4}, MAP_ONE_HOT, MAP_SCORES),
    ("BinaryIoU", {"threshold": 0.4}, MAP_BITS, MAP_UNIT),
]

UNWEIGHTED = list({case[0]: case for case in CASES}.values())[::3]  # of each kind one

CASES_SKLEARN = {
    "mean_iou": (
        metrics.MeanIoU(3),
        LABELS_SKLEARN,
        CHOSEN,
        lambda: weighted(sk.jaccard_score, LABELS_SKLEARN, CHOSEN, average="macro"),
    ),
}

STATES = [
    ("MeanIoU", (3,), ("total_cm",), (LABELS_SUBCLASSES, LABELS_SUBCLASSES[::-1])),
]


@pytest.mark.parametrize(("metric", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_padding_has_no_effect(metric, y_true, y_pred):
    check_padding_has_no_effect(metric, y_true, y_pred)


@pytest.mark.parametrize(("metric", "y_true", "y_pred"), EVERY[::4], ids=NAMES[::4])
def test_keras_surface(metric, y_true, y_pred):
    check_keras_surface(metric, y_true, y_pred)


@pytest.mark.parametrize(("metric", "y_true", "y_pred", "error"), MISFITS)
def test_misfits_are_errors(metric, y_true, y_pred, error):
    with pytest.raises(error) as caught:
        metric.build(y_true, y_pred)
    assert len(str(caught.value).splitlines()) <= 12


@pytest.mark.parametrize(("metric", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_config_round_trip(metric, y_true, y_pred):
    check_config_round_trip(metric, y_true, y_pred)


@pytest.mark.parametrize(
    "make",
    [
        lambda: metrics.IoU(2, [2]),
    ],
)
def test_impossible_options(make):
    with pytest.raises(ArgumentError):
        make()


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")  # Keras' own
@pytest.mark.parametrize(
    ("name", "options", "y_true", "y_pred", "weighted"),
    [(*case, True) for case in CASES] + [(*case, False) for case in UNWEIGHTED],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_streams(name, options, y_true, y_pred, weighted):
    check_streams(name, options, y_true, y_pred, weighted)


@pytest.mark.parametrize("name", CASES_SKLEARN)
def test_weighted_streams(name):
    metric, y_true, y_pred, expected = CASES_SKLEARN[name]
    np.testing.assert_allclose(value(metric, y_true, y_pred), expected(), rtol=2e-5)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")  # by Keras
@pytest.mark.parametrize(("name", "arguments", "attributes", "data"), STATES)
def test_the_state_has_the_names_of_keras(name, arguments, attributes, data):
    check_the_state_has_the_names_of_keras(name, arguments, attributes, data)
