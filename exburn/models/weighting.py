"""Class weights as sample weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from exburn.data import (
    ArrayDataset,
    RaggedArray,
    RaggedDataset,
    StreamDataset,
    is_ragged,
)
from exburn.errors import ArgumentError, TargetError


def class_weights(
    dataset: ArrayDataset | StreamDataset, weights: Mapping[int, float], op: str = "fit"
) -> ArrayDataset | StreamDataset:
    """The data set with each row weighted by its class.

    Args:
        weights: ``{class: weight}``, with an entry for every class in the data. Classes
            that these data have no row of are allowed: others may have them.
    """
    if not isinstance(weights, Mapping) or not weights:
        raise ArgumentError(
            op,
            f"class_weight must be a dict {{class: weight}}, received {weights!r}",
            hint="Of a list of weights: dict(enumerate(weights)).",
        )
    _check_classes(op, weights)
    for label, weight in weights.items():
        number = isinstance(weight, int | float | np.number)
        if not number or not np.isfinite(weight) or weight < 0:
            raise ArgumentError(
                op,
                f"class_weight[{label!r}] must be a number ≥ 0, received {weight!r}",
            )

    def weigh(batch: tuple) -> tuple:
        x, y, w = batch
        if is_ragged(y):
            each = _rows(op, y.entries, w, weights)
            return x, y, RaggedArray(each, y.lengths)
        return x, y, _rows(op, y, w, weights)

    if isinstance(dataset, StreamDataset):
        return dataset.map_batches(weigh)
    if isinstance(dataset, RaggedDataset):
        return dataset.like(weigh(dataset.tree))
    return ArrayDataset(*weigh(dataset.tree))


def _check_classes(op: str, weights: Mapping) -> None:
    """Raises for a key that no label equals; its weight would weigh nothing."""
    for key in weights:
        number = isinstance(key, int | float | np.number | np.bool_)
        if number and np.isfinite(key) and key == np.floor(key):
            continue
        hint = "Keys are the labels of the targets, or the columns of one-hot rows."
        if isinstance(key, str) and re.fullmatch(r"[+-]?[0-9]+", key.strip()):
            hint = (
                "Keys of JSON are text: class_weight={int(k): v for k, v in "
                "class_weight.items()}."
            )
        elif isinstance(key, str):
            hint = "Name classes by number: {names.index(name): weight, …}."
        raise ArgumentError(op, f"class_weight: {key!r} is no class", hint=hint)


def check_known_classes(op: str, weights: Mapping[int, float], outputs: Any) -> None:
    """Raises for a class beyond those that a model tells apart.

    Negative labels may be ones that its loss ignores.
    """
    shape = getattr(outputs, "shape", ())
    if len(shape) != 2 or shape[1] < 2:
        return
    if beyond := [key for key in weights if key >= shape[1]]:
        raise ArgumentError(
            op,
            f"class_weight: {beyond[0]!r} is no class of a model with {shape[1]} "
            "outputs",
            hint=f"Classes are 0 to {shape[1] - 1}.",
        )


def _rows(op: str, y: Any, w: Any, weights: Mapping[int, float]) -> np.ndarray:
    if not hasattr(y, "shape"):
        raise ArgumentError(
            op,
            "class_weight needs exactly one array of targets",
            hint="With several outputs, pass sample_weight as a dict by output name.",
        )
    if w is not None:
        raise ArgumentError(
            op,
            "give class_weight or sample_weight, not both",
            hint="Multiply them: sample_weight * [weight of each row's class].",
        )
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] > 1 and np.allclose(labels.sum(1), 1):
        columns, labels = labels.shape[1], labels.argmax(1)
        beyond = [key for key in weights if not 0 <= key < columns]
        if beyond:
            raise ArgumentError(
                op,
                f"class_weight: {beyond[0]!r} is no class of one-hot targets with "
                f"{columns} columns",
                hint=f"Classes are 0 to {columns - 1}.",
            )
    labels = labels.reshape(len(labels), -1)
    if labels.shape[1] != 1:
        raise ArgumentError(
            op,
            f"class_weight needs one label for each row, received targets of shape "
            f"{np.shape(y)}",
        )
    labels = labels[:, 0]
    if not (whole := labels == np.floor(labels)).all():
        row = int(whole.argmin())
        raise TargetError(
            op,
            "class_weight needs whole class labels",
            {"first offending value": labels[row], "row": row},
            hint="Drop or fill this row, or pass sample_weight instead.",
        )
    labels = labels.astype(np.int64)
    present = np.unique(labels)
    missing = [int(c) for c in present if int(c) not in weights]
    if missing:
        raise TargetError(
            op,
            f"class {missing[0]} is in the data but not in class_weight",
            {"classes": present[:20].tolist(), "class_weight": dict(weights)},
            hint=f"Add it: class_weight={{…, {missing[0]}: 1.0}}.",
        )
    table = {int(c): float(weights[int(c)]) for c in present}
    return np.array([table[int(c)] for c in present], np.float32)[
        np.searchsorted(present, labels)
    ]
