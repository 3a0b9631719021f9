"""Whether a short batch, filled up with copies of its first row, would be seen.

Our layers, losses and metrics leave those rows out; a user's layer that subtracts the
mean of the batch knows nothing of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from exburn.core.batch_independence import is_foreign, mixes_rows
from exburn.layers import Lambda
from exburn.layers.contract.pure import PureLayer
from exburn.module.symbolic_tensor import Operation
from exburn.module.traversal import iter_modules


def model_mixes_rows(
    module: Any, forward: Callable, groups: Any, x: Any, numbers: Counter
) -> bool:
    """Whether a model with parts that are not ours may mix rows, in whichever part.

    Layers of ours know of filled-up rows, but not of those that a user's has joined or
    turned.

    Args:
        numbers: Those of a trace for these inputs: see ``mixes_rows``.
    """
    if not holds_foreign_parts(module):
        return False
    return mixes_rows(forward, x, beside=groups, numbers=numbers)


def holds_foreign_parts(module: Any) -> bool:
    """Whether a part of a model is not ours, or works along the rows."""
    return any(_holds_others(part) for _, part in iter_modules(module))


def _holds_others(part: Any) -> bool:
    """Whether a part is not ours, calls what is not, or works along the rows."""
    if is_foreign(part) or isinstance(part, Lambda | PureLayer):
        return True
    values = vars(part)
    axis = values.get("axis")
    if axis == 0 or isinstance(axis, list | tuple) and 0 in axis:
        return True
    nodes = getattr(getattr(part, "graph", None), "nodes", ())
    return any(isinstance(node.target, Operation) for node in nodes) or any(
        callable(value) and is_foreign(value) for value in values.values()
    )


def loss_mixes_rows(loss: Any, target: Any, pred: Any) -> bool:
    """Whether a loss that is not ours, or made of such a function, mixes rows."""

    def call(target: Any, pred: Any) -> Any:
        return loss.call(*loss._convert(target, pred))

    foreign = is_foreign(loss) or is_foreign(getattr(loss, "fn", loss))
    return foreign and mixes_rows(call, target, pred)


def compares_rows(loss: Any) -> bool:
    """Whether a loss may do so: it is not ours, or gives one number a batch."""
    foreign = is_foreign(loss) or is_foreign(getattr(loss, "fn", loss))
    return foreign or loss.per_sample is False


def metric_mixes_rows(metric: Any, target: Any, pred: Any) -> bool:
    """Whether a metric that is not ours, or made of such a function, may mix rows."""
    if is_foreign(metric):
        return True  # it may count what it is given
    function = getattr(metric, "_fn", metric)
    return is_foreign(function) and mixes_rows(metric.values, target, pred)
