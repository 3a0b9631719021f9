"""Tries whether a model gives a row that is filled up what it gives the row alone."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from exburn.data import Padded, RaggedDataset, is_padded
from exburn.errors import ShapeError
from exburn.training.batch_mixing import holds_foreign_parts
from exburn.training.prepare import Preparer
from exburn.training.ragged_outputs import cut_batch
from exburn.training.row_axes import check_shortest

_TOLERANCE = 1e-3  # of the largest output: XLA sums in another order
# Quick to compile: each runs once.
_OPTIONS = {"xla_backend_optimization_level": 0}


def check_model_rows(
    preparer: Preparer, dataset: RaggedDataset, x: Any, kind: str, op: str
) -> None:
    """Raises if a model would mix real and filled-up positions.

    Layers of the catalogue have rules. What else a model is made of is tried, on one
    row: alone, filled up, and filled up with other values.

    Args:
        x: Specs of a batch.
        kind: ``"train"``, ``"test"`` or ``"predict"``.
    """
    split = preparer.holder.split
    survey = split.survey(split.peek(), x, kind == "train")
    lengths = dict(enumerate(dataset.axes))
    check_shortest(survey, lengths, op)
    key = "tried rows", jax.tree.structure(x)
    if not holds_foreign_parts(split.module) or key in preparer.programs.joins:
        return
    if not _agrees(preparer, dataset):
        raise ShapeError(
            op,
            "the model gives rows that are filled up to one length other outputs than "
            "alone",
            {"tried": "one row: alone, filled up, and filled up with other values"},
            hint="Layers of your own are told which positions are real if their call "
            "takes mask=; operations along time (mean, x[:, -1]) are not.",
        )
    preparer.programs.joins[key] = True


def _agrees(preparer: Preparer, dataset: RaggedDataset) -> bool:
    """Whether one row has the same outputs alone and filled up."""
    split = preparer.holder.split
    row = np.array([int(np.argmin(np.sum(dataset.axes, axis=0)))])
    lengths = [v[row] for v in dataset.axes]
    alone = dataset.fill(row, dataset.fixed_or([int(n[0]) for n in lengths])).tree[0]
    padded = dataset.fill(row, dataset.widest).tree[0]
    survey = split.survey(split.peek(), padded, False)
    groups = split.read()

    def forward(groups: Any, x: Any) -> Any:
        return split.forward(groups, x, training=False, key=jax.random.key(0))[0]

    with jax.numpy_dtype_promotion("standard"):
        program = jax.jit(forward)

        def outputs(x: Any) -> list[np.ndarray]:
            host = jax.tree.map(np.asarray, program(groups, x))
            return jax.tree.leaves(cut_batch(host, survey, lengths))

        before = outputs(alone)
        others = (
            outputs(padded),
            outputs(jax.tree.map(_other, padded, is_leaf=is_padded)),
        )
    return all(
        len(now) == len(before) and all(map(_close, before, now)) for now in others
    )


def _other(leaf: Any) -> Any:
    """Filled-up rows with other values in the filled-up positions: their first ones."""
    if not is_padded(leaf):
        return leaf
    values = leaf.values.copy()
    for row, length in zip(values, leaf.lengths, strict=True):
        row[length:] = row[0]
    return Padded(values, leaf.lengths, leaf.axis)


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape:
        return False
    scale = np.abs(a).max(initial=1e-6)
    return bool(
        np.allclose(a, b, rtol=_TOLERANCE, atol=_TOLERANCE * scale, equal_nan=True)
    )
