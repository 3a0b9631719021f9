"""The loss of a model's last product, without an array of all its scores.

Whether that may be is read from the trace: the output must be the very array that the
product gave (``Context.head_of``), whatever layer made it. Everything else that reads
it (another loss, another metric) has plain scores made.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn import metrics
from exburn.core.checks import is_known
from exburn.runtime.kernels.head_loss import Head, RowChunks, ScoredRows, fits
from exburn.training.objective.objective import Objective

_MEANS = "sum_over_batch_size", "mean", "mean_with_sample_weight", "sum"


def loss_of_head(
    objective: Objective,
    y: Any,
    preds: Any,
    heads: list[Head | None],
    w: Any,
    masks: list[Any],
    row_mask: Any,
) -> tuple[jax.Array, dict[str, Any], ScoredRows] | None:
    """What ``Objective.loss`` gives, and what is known of the rows for metrics.

    Args:
        preds: The outputs.
        heads: The product that each of them is, if it is one.

    Returns:
        ``None`` where the scores are made.
    """
    if len(objective.terms) != 1:
        return None
    (term,) = objective.terms
    i, loss = term.output, term.loss
    head, pred = heads[i], jax.tree.leaves(preds)[i]
    target, weight = objective.split_targets(y)[i], objective.split_weights(w)[i]
    takes = vars(type(loss)).get("takes_head")  # not by inheritance
    if head is None or takes is None or not takes(loss, target, pred):
        return None
    if loss.reduction not in _MEANS or loss._dtype is not None or not fits(head):
        return None
    if target.shape not in (pred.shape[:-1], (*pred.shape[:-1], 1)):
        return None
    if masks[i] is not None and masks[i].shape != pred.shape[:-1]:
        return None
    reads = {_reads(meter, i, loss) for meter in objective.meters}
    if None in reads:
        return None
    alike = not objective.by_tokens and any(not m.weighted for m in objective.meters)
    value, scored = loss.of_head(
        head,
        target,
        pred,
        weight,
        masks[i],
        row_mask,
        skips=not alike,
        plan=RowChunks(first="first" in reads, higher="higher" in reads),
    )
    value = value.astype(jnp.float32)
    total = jnp.zeros((), jnp.float32) + objective._scales[term.place] * value
    return total, {term.name: value}, scored


def _reads(meter: Any, output: int, loss: Any) -> str | None:
    """What of ``ScoredRows`` a metric reads; ``None``: it needs the scores."""
    metric = meter.metric
    if meter.output != output:
        return None
    if type(metric) is metrics.SparseCategoricalAccuracy:
        return "first"
    if type(metric) is metrics.SparseTopKCategoricalAccuracy:
        return None if metric.from_sorted_ids else "higher"
    if type(metric) is metrics.SparseCategoricalCrossentropy:
        plain = is_known(loss.label_smoothing, 0) and metric.from_logits
        whole = metric.ignore_class is None and metric.axis == -1
        return "losses" if plain and whole else None
    return None
