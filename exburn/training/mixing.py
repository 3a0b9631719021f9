"""Whether a short batch, filled up with copies of its first row, would be seen.

Our layers, losses and metrics leave those rows out; a user's layer that subtracts the
mean of the batch knows nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.interpreters.partial_eval import dce_jaxpr

from exburn.building import spec_like
from exburn.layers import Lambda
from exburn.row_mixing import is_foreign, mixes_rows
from exburn.symbol import Operation
from exburn.traversal import iter_modules

__all__ = ["loss_mixes_rows", "metric_ignores_weights", "model_mixes_rows"]


def model_mixes_rows(module: Any, forward: Callable, groups: Any, x: Any) -> bool:
    """Whether a model's forward pass mixes rows in a part that is not ours.

    Args:
        module: The model.
        forward: Its outputs, and what it does beside, for ``groups`` and inputs.
        groups: Specs of its arrays.
        x: Specs of the inputs of a batch.
    """
    foreign = False
    for _, part in iter_modules(module):
        foreign |= is_foreign(part) or isinstance(part, Lambda)
        for node in getattr(getattr(part, "graph", None), "nodes", ()):
            # A functional model's axis of rows is unknown; without it, they were mixed.
            lost = any(not s or s[0] is not None for s in node.shapes)
            if lost and isinstance(node.target, Operation) and _has_rows(part.graph):
                return True
    return foreign and mixes_rows(forward, x, beside=groups)


def _has_rows(graph: Any) -> bool:
    return all(
        spec.shape and not isinstance(spec.shape[0], int) for spec in graph.inputs
    )


def loss_mixes_rows(loss: Any, target: Any, pred: Any) -> bool:
    """Whether a loss that is not ours, or made of such a function, mixes rows.

    Args:
        loss: The loss.
        target, pred: Specs of its arguments.
    """

    def call(target: Any, pred: Any) -> Any:
        return loss.call(*loss._converted(target, pred))

    foreign = is_foreign(loss) or is_foreign(getattr(loss, "fn", loss))
    return foreign and mixes_rows(call, target, pred)


def metric_ignores_weights(metric: Any, target: Any, pred: Any) -> bool:
    """Whether totals of a metric that is not ours do not depend on the weights.

    These are 0 for filled-up rows.

    Args:
        metric: The metric, built.
        target, pred: Specs of its arguments.
    """
    if not is_foreign(metric):
        return False
    state = jax.tree.map(spec_like, metric.init())
    rows = jax.tree.leaves(pred)[0].shape[:1]

    def update(weights: Any, *values: Any) -> Any:
        return metric.update(*values, sample_weight=weights)

    weights = jax.ShapeDtypeStruct(rows, "float32")
    jaxpr = jax.make_jaxpr(update)(weights, state, target, pred).jaxpr
    return not dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[1][0]
