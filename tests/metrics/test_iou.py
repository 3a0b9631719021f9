"""Tests of ``exburn.metrics.iou``."""

from sklearn import metrics as sk
from tests.metrics.protocol import BITS, LABELS, ONE_HOT, PROBS, spec
from tests.metrics.reference import (
    MAP,
    MAP_2,
    MAP_BITS,
    MAP_ONE_HOT,
    MAP_SCORES,
    MAP_UNIT,
)
from tests.metrics.subclasses import LABELS as LABELS_SUBCLASSES
from tests.metrics.with_sklearn import CHOSEN, weighted
from tests.metrics.with_sklearn import LABELS as LABELS_SKLEARN

from exburn import metrics
from exburn.errors import ShapeError

METRICS = [
    (metrics.IoU(3, [0, 2]), LABELS, LABELS[::-1]),
    (metrics.BinaryIoU([1], threshold=0.3), BITS, PROBS),
    (metrics.MeanIoU(3, sparse_y_pred=False), LABELS, PROBS),
    (metrics.OneHotIoU(3, [0]), ONE_HOT, PROBS),
    (metrics.OneHotMeanIoU(3), ONE_HOT, PROBS),
]


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


WEIGHTED = {
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


BAD_ARGUMENTS = [
    lambda: metrics.IoU(2, [2]),
]
