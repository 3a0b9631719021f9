"""Outputs for rows of unlike lengths: in the rows' order, and of the rows' lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from exburn.errors import ShapeError
from exburn.training.feed.chunk import Chunk
from exburn.training.feed.ragged_feed import RaggedFeed
from exburn.training.output_collector import OutputCollector
from exburn.training.row_axes import RowAxis, Survey


class RaggedCollector:
    """Collects outputs bucket by bucket, and gives them back in the rows' order.

    An output of one entry for each row is one array; one with an entry for each
    position is a list with an array for each row, as long as the row.

    Args:
        feed: What gives the rows.
        survey: Which outputs have an axis of time.
    """

    def __init__(self, feed: RaggedFeed, survey: Survey):
        check_outputs(survey)
        self._feed, self._survey = feed, survey
        sizes = [len(bucket.rows) for bucket in feed.buckets]
        self._buckets = [OutputCollector(size) for size in sizes]

    def put(self, chunk: Chunk, outputs: Any) -> None:
        self._buckets[chunk.bucket].put(chunk, outputs)

    def rows(self, chunk: Chunk, outputs: Any) -> Any:
        """The chunk's real rows, on the host at once, filled up as they were."""
        return self._buckets[chunk.bucket].rows(chunk, outputs)

    def result(self) -> Any:
        done = zip(self._feed.buckets, self._buckets, strict=True)
        parts = [(b.rows, c.result()) for b, c in done if c.has_rows]
        trees = [jax.tree.flatten(tree) for _, tree in parts]
        rows = [
            rows[: len(v[0])] for (rows, _), (v, _) in zip(parts, trees, strict=True)
        ]
        order = np.argsort(np.concatenate(rows), kind="stable")
        numbers = np.concatenate(rows)[order]
        outputs = []
        for place, axis in enumerate(self._survey.outputs):
            arrays = [leaves[place] for leaves, _ in trees]
            if axis is None:
                outputs.append(np.concatenate(arrays)[order])
            else:
                lengths = axis.length(self._feed.dataset.axes[axis.number])
                outputs.append(cut_rows(arrays, order, lengths[numbers]))
        return trees[0][1].unflatten(outputs)


def check_outputs(survey: Survey) -> None:
    """Raises if an output cannot be cut to the lengths of the rows."""
    if survey.others:
        raise ShapeError(
            "predict",
            f"output {survey.others[0]} has an axis as long as the rows that is not "
            "its second one",
            hint="Call the model itself, model(x), on rows of one length.",
        )


def cut_rows(
    arrays: Sequence[np.ndarray], order: np.ndarray, lengths: np.ndarray
) -> list[np.ndarray]:
    """The rows of arrays in another order, each as long as it is."""
    rows = [row for array in arrays for row in array]
    return [rows[at][:length] for at, length in zip(order, lengths, strict=True)]


def cut_batch(outputs: Any, survey: Survey, axes: Sequence[np.ndarray]) -> Any:
    """Outputs of one batch, those for each position as long as the rows."""
    check_outputs(survey)
    leaves, structure = jax.tree.flatten(outputs)

    def cut(array: np.ndarray, axis: RowAxis | None) -> Any:
        if axis is None:
            return array
        lengths = axis.length(axes[axis.number])
        return cut_rows([array], np.arange(len(array)), lengths)

    pairs = zip(leaves, survey.outputs, strict=True)
    return structure.unflatten([cut(array, axis) for array, axis in pairs])
