"""Metrics over streams of batches, with weights, and their functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.fuzz.losses import arrays, sample_weight
from tests.fuzz.values import Array, Call, pick

TOLERANCE = 5e-4

_BETWEEN = (0.2, 0.5, 0.7)
#: What targets and predictions are, and options with their values.
METRICS: dict[str, tuple[str, dict[str, tuple]]] = {
    "Accuracy": ("labels", {}),
    "BinaryAccuracy": ("binary", {"threshold": (0.3, 0.7)}),
    "CategoricalAccuracy": ("one-hot", {}),
    "SparseCategoricalAccuracy": ("sparse", {}),
    "TopKCategoricalAccuracy": ("one-hot row", {"k": (1, 2)}),
    "SparseTopKCategoricalAccuracy": ("sparse row", {"k": (1, 2)}),
    "MeanSquaredError": ("real", {}),
    "RootMeanSquaredError": ("real", {}),
    "MeanAbsoluteError": ("real", {}),
    "MeanAbsolutePercentageError": ("positive", {}),
    "MeanSquaredLogarithmicError": ("positive", {}),
    "LogCoshError": ("real", {}),
    "CosineSimilarity": ("real", {"axis": (-1,)}),
    "R2Score": (
        "matrix",
        {"class_aggregation": (None, "variance_weighted_average")},
    ),
    "PearsonCorrelation": ("matrix", {"axis": (-1,)}),
    "ConcordanceCorrelation": ("matrix", {"axis": (-1,)}),
    "BinaryCrossentropy": (
        "binary",
        {"from_logits": (True,), "label_smoothing": (0.1,)},
    ),
    "CategoricalCrossentropy": ("one-hot", {"label_smoothing": (0.1,)}),
    "SparseCategoricalCrossentropy": ("sparse", {"from_logits": (True,)}),
    "KLDivergence": ("share", {}),
    "Poisson": ("positive", {}),
    "Hinge": ("sign", {}),
    "SquaredHinge": ("sign", {}),
    "CategoricalHinge": ("one-hot", {}),
    "AUC": (
        "binary",
        {
            "num_thresholds": (5, 20),
            "curve": ("PR", "ROC"),
            "summation_method": ("minoring", "majoring", "interpolation"),
        },
    ),
    "Precision": ("binary", {"thresholds": (0.3, [0.2, 0.6])}),
    "Recall": ("binary", {"thresholds": (0.3, [0.2, 0.6])}),
    "PrecisionAtRecall": ("binary", {"recall": _BETWEEN, "num_thresholds": (10,)}),
    "RecallAtPrecision": ("binary", {"precision": _BETWEEN, "num_thresholds": (10,)}),
    "SensitivityAtSpecificity": ("binary", {"specificity": _BETWEEN}),
    "SpecificityAtSensitivity": ("binary", {"sensitivity": _BETWEEN}),
    **dict.fromkeys(
        ("TruePositives", "FalsePositives", "TrueNegatives", "FalseNegatives"),
        ("binary", {"thresholds": (0.3, [0.2, 0.6])}),
    ),
    "F1Score": (
        "one-hot row",
        {"average": ("micro", "macro", "weighted"), "threshold": (0.4,)},
    ),
    "FBetaScore": (
        "one-hot row",
        {"average": ("micro", "macro"), "threshold": (0.4,), "beta": (0.5, 2.0)},
    ),
    "IoU": ("labels", {"num_classes": (5,), "target_class_ids": ([0], [0, 2])}),
    "BinaryIoU": ("binary", {"target_class_ids": ([0], [1]), "threshold": (0.3,)}),
    "MeanIoU": ("labels", {"num_classes": (5,), "ignore_class": (0, 2)}),
    "OneHotIoU": ("one-hot", {"target_class_ids": ([0], [0, 1])}),
    "OneHotMeanIoU": ("one-hot", {"sparse_y_pred": (False,)}),
    "Mean": ("values", {}),
    "Sum": ("values", {}),
}
_ALWAYS = {
    "recall": ("PrecisionAtRecall",),
    "precision": ("RecallAtPrecision",),
    "specificity": ("SensitivityAtSpecificity",),
    "sensitivity": ("SpecificityAtSensitivity",),
    "num_classes": ("IoU", "MeanIoU"),
    "target_class_ids": ("IoU", "OneHotIoU"),
}


def _batch(rng, what: str, shape: tuple, logits: bool) -> tuple[Any, Any]:
    if what == "values":
        return (pick(rng, Array(int(rng.integers(1000)), shape), 1.5),)
    if what == "labels":
        seed = int(rng.integers(1000))
        return Array(seed, shape, "int32", 0, 5), Array(seed + 1, shape, "int32", 0, 5)
    return arrays(rng, what, shape, logits)


def draw(rng: np.random.Generator) -> dict:
    name = pick(rng, *METRICS)
    what, known = METRICS[name]
    kind = what.removesuffix(" row").replace("matrix", "real")
    rank = 2 if what in ("matrix", "one-hot row", "sparse row") else rng.integers(2, 4)
    tail = tuple(int(n) for n in rng.integers(2, 5, int(rank) - 1))
    options = {
        k: pick(rng, *v)
        for k, v in known.items()
        if name in _ALWAYS.get(k, ()) or rng.random() < 0.4
    }
    if name in ("OneHotIoU", "OneHotMeanIoU"):
        options["num_classes"] = tail[-1]
    batches = []
    for _ in range(int(rng.integers(1, 4))):
        shape = (int(rng.integers(2, 6)), *tail)
        batch = _batch(rng, kind, shape, options.get("from_logits", False))
        weighed = shape if kind in ("values", "labels") else shape[:-1]
        weight = sample_weight(rng, weighed) if rng.random() < 0.5 else None
        batches.append({"of": batch, "weight": weight})
    return {"metric": name, "options": options, "batches": batches}


def render(spec: dict) -> str:
    lines = [f"metric = {Call('metrics.' + spec['metric'], [], spec['options'])!r}"]
    lines.append("result = []")
    for batch in spec["batches"]:
        given = ", ".join(map(repr, batch["of"]))
        if batch.get("weight") is not None:
            given += f", sample_weight={batch['weight']!r}"
        lines.append(f"metric.update_state({given})")
        lines.append("result.append(metric.result())")
    return "\n".join(lines)
