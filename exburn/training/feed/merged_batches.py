"""How many batches evaluation and prediction compute as one.

A small model's step takes a GPU, or a CPU's caches, little more time for 512 rows than
for 32. What comes out is the same: rows do not see each other, and means add up.
"""

from __future__ import annotations

from typing import Any

import jax

from exburn.data import ArrayDataset
from exburn.training.feed.plan import choose_merged_batches
from exburn.training.prepare import Preparer
from exburn.training.prepared_cache import form_of

_MEANS = ("sum_over_batch_size", "mean")


def merged_batches(
    prepared: Preparer, dataset: ArrayDataset, rows: int, use: str
) -> int:
    """How many batches run as one."""
    asked, batches = prepared.join_batches, -(-dataset.size // rows)
    by_hand = asked == "auto" and prepared.steps_per_execution != "auto"
    if asked == 1 or batches == 1 or by_hand or prepared.eager:
        return 1
    if prepared.exact_rows(False):
        return 1

    def specs(count: int) -> Any:
        return jax.tree.map(
            lambda v: jax.ShapeDtypeStruct((count, *v.shape[1:]), v.dtype),
            dataset.tree,
        )

    most = min(int(asked), batches) if asked != "auto" else None
    cost = prepared.cost(specs(rows)[0])
    many = most or choose_merged_batches(cost, batches, jax.default_backend())
    return many if many > 1 and _adds_up(prepared, specs(many * rows), use) else 1


def _adds_up(prepared: Preparer, batch: tuple, use: str) -> bool:
    """Whether a step of so many rows gives what its batches would, one by one."""
    programs = prepared.programs
    key = use, form_of(batch)
    if key not in programs.joins:
        try:
            programs.joins[key] = _trace_merged(prepared, batch, use)
        except Exception:  # whatever a user's code raises for other numbers of rows
            programs.joins[key] = False
    return programs.joins[key]


def _trace_merged(prepared: Preparer, batch: tuple, use: str) -> bool:
    """Whether batches add up, by a trace of a step of all their rows.

    It does not if random numbers are drawn, which each batch has of its own, if a
    variable changes (a batch normalization is told to train), if it calls functions of
    the host, or where the mean of a batch has another denominator than its rows.
    """
    split, objective, obstacles = prepared.holder.split, prepared.objective, {}

    def step(groups: Any, totals: Any, batch: tuple) -> Any:
        x, y, w = batch
        key = jax.random.key(0)
        out, others, ctx = split.forward(groups, x, training=False, key=key)
        obstacles["assigned"] = any(others[n] is not groups[2].get(n) for n in others)
        if use == "predict":
            return out
        filled, masks = ctx.attachments(out)
        obstacles["masked"] = any(mask is not None for mask in masks)
        obstacles["added"] = bool(ctx.losses)
        targets, preds = objective.split_targets(y), jax.tree.leaves(out)
        obstacles["ignored"] = any(
            term.loss.ignored(targets[term.output], preds[term.output]) is not None
            for term in objective.terms
        )
        outputs, rows = (out, filled), float(jax.tree.leaves(x)[0].shape[0])
        loss, parts = objective.loss(y, outputs, w, masks, None)
        return objective.update(totals, loss, parts, y, outputs, w, masks, None, rows)

    totals = prepared.totals("test") if use == "test" else None
    with jax.numpy_dtype_promotion("standard"):
        program = jax.make_jaxpr(step)(split.peek(), totals, batch)
    obstacles["calls out"] = bool(program.effects)
    losses = [term.loss for term in objective.terms] if use == "test" else []
    means = all(
        loss.per_sample is not False and loss.reduction in _MEANS for loss in losses
    )
    return means and not (split.draws or any(obstacles.values()))
