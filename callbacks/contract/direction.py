"""The direction in which a logged value is better, as far as its name tells."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# The last word of a name that says something decides: "accuracy_loss" is a loss.
_MAXIMISED = frozenset(
    "acc accuracy auc bleu correlation dice f1 fbeta iou map precision r2 recall "
    "score sensitivity similarity specificity".split()
)
_MINIMISED = frozenset(
    "crossentropy distance divergence entropy err error hinge logcosh loss mae mape "
    "mse msle nll perplexity poisson ppl rmse".split()
)


def rises(name: str, metrics: Iterable[Any] = ()) -> bool | None:
    """Tells whether more is better; ``None`` where neither metric nor name does.

    Args:
        name: A logged name.
        metrics: Those of the model, whose ``direction`` counts before a name.

    Example:
        >>> rises("val_accuracy"), rises("val_accuracy_loss"), rises("learning_rate")
        (True, False, None)
    """
    for metric in metrics:
        direction = getattr(metric, "direction", None)
        if direction and metric.name == name.removeprefix("val_"):
            return direction == "up"
    for word in reversed(name.lower().replace("io_u", "iou").split("_")):
        if word in _MAXIMISED or word in _MINIMISED:
            return word in _MAXIMISED
    return None
