"""Checks of real target values on the host, before anything is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from exburn.errors import TargetError


def _offender(y: np.ndarray, bad: np.ndarray) -> dict[str, Any]:
    first = np.unravel_index(int(np.argmax(bad)), bad.shape)
    return {
        "first offending value": y[first].item(),
        "row": int(first[0]) if first else 0,
        "offending values": f"{int(bad.sum())} of {bad.size}",
    }


def _within(y: np.ndarray, low: float, high: float) -> bool:
    """A fast test on the extremes; NaN is never within."""
    return y.size == 0 or bool(y.min() >= low and y.max() <= high)


def check_class_range(
    op: str, y_true: Any, classes: Any, ignore_class: int | None = None
) -> None:
    """Labels must be whole numbers from 0 to ``classes - 1``.

    Example:
        >>> check_class_range("fit", np.array([0, 3, 1]), classes=3)
        Traceback (most recent call last):
        ...
        exburn.errors.TargetError: fit: class labels must be whole numbers from 0 to 2
          first offending value: 3
          row: 1
          offending values: 1 of 3
          → The last layer has 3 units, so there are 3 classes, counted from 0.
    """
    y = np.asarray(y_true)
    is_fixed = isinstance(classes, int)
    high = classes - 1 if is_fixed else np.inf
    whole = y.dtype.kind in "iub" or bool(np.all(y == np.floor(y)))
    if whole and _within(y, 0, high):
        return
    bad = ~((y >= 0) & (y <= high) & (y == np.floor(y)))
    if ignore_class is not None:
        bad &= y != ignore_class
    if not bad.any():
        return
    raise TargetError(
        op,
        f"class labels must be whole numbers from 0 to {high if is_fixed else '…'}",
        _offender(y, bad),
        hint=f"The last layer has {classes} units, so there are {classes} classes, "
        "counted from 0."
        if is_fixed
        else None,
    )


def check_unit_interval(op: str, y_true: Any) -> None:
    """Targets that are probabilities must lie between 0 and 1."""
    y = np.asarray(y_true)
    if not _within(y, 0, 1):
        raise TargetError(
            op,
            "targets must lie between 0 and 1",
            _offender(y, ~((y >= 0) & (y <= 1))),
            hint="For class labels above 1 use 'sparse_categorical_crossentropy'.",
        )


def check_not_below(op: str, y_true: Any, low: float) -> None:
    """Targets of a logarithm must not be below ``low``."""
    y = np.asarray(y_true)
    if not _within(y, low, np.inf):
        bad = ~(y >= low)
        raise TargetError(op, f"targets must not be below {low:g}", _offender(y, bad))


def check_hinge_labels(op: str, y_true: Any) -> None:
    """Hinge targets are -1 and 1, or 0 and 1; with all three, 0 is ambiguous."""
    y = np.asarray(y_true)
    if y.dtype.kind == "b" or not (y == 0).any():
        return
    bad = y < 0
    if bad.any():
        raise TargetError(
            op,
            "targets must be -1 and 1, or 0 and 1; these hold 0 and negative values",
            _offender(y, bad),
        )


def check_sequences(op: str, y_true: Any, steps: Any, classes: Any) -> None:
    """Label sequences: classes from 1, padded with 0 on the right, short enough."""
    y = np.asarray(y_true)
    check_class_range(op, y, classes)
    if y.ndim != 2:
        return
    hole = (y[:, :-1] == 0) & (y[:, 1:] != 0)
    if hole.any():
        raise TargetError(
            op,
            "label 0 is the blank, and may only pad a sequence on its right",
            {"row": int(np.argmax(hole.any(axis=1)))},
            hint="Count the classes from 1.",
        )
    # A blank must stand between two equal labels, so repeats take one step more.
    needed = (y != 0).sum(1) + ((y[:, 1:] == y[:, :-1]) & (y[:, 1:] != 0)).sum(1)
    if isinstance(steps, int) and (needed > steps).any():
        row = int(np.argmax(needed > steps))
        raise TargetError(
            op,
            f"a label sequence does not fit into {steps} time steps",
            {"row": row, "steps needed": int(needed[row])},
        )
