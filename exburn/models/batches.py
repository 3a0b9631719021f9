"""One batch at a time: the loops that users write themselves."""

from __future__ import annotations

from typing import Any

from exburn.data import ArrayDataset
from exburn.models.arguments import logs_as
from exburn.models.encoding import read_batch
from exburn.models.weighting import check_known_classes, class_weights

__all__ = ["Batches"]


class Batches:
    """``train_on_batch`` and its kin; mixed into ``Model``."""

    _run: Any
    _trainer: Any
    _prepare: Any
    _guarded: Any
    _predictor: Any
    metrics: Any

    def train_on_batch(
        self, x, y=None, sample_weight=None, class_weight=None, return_dict=False
    ):
        """One update on one batch; returns its loss and metrics."""
        return self._on_batch(
            "train_on_batch", x, y, sample_weight, class_weight, return_dict, train=True
        )

    def test_on_batch(self, x, y=None, sample_weight=None, return_dict=False):
        """The loss and metrics of one batch, without an update."""
        return self._on_batch(
            "test_on_batch", x, y, sample_weight, None, return_dict, train=False
        )

    def _on_batch(self, op, x, y, sample_weight, class_weight, return_dict, *, train):
        trainer = self._trainer(op)
        trainer.check_free(op, train=train)
        dataset = read_batch(self, x, y, sample_weight, op=op)
        if class_weight is not None:
            dataset = class_weights(dataset, class_weight, op)
            assert isinstance(dataset, ArrayDataset)
        outputs = self._prepare(op, dataset, train=train, batch_size=dataset.size)
        if class_weight is not None:
            check_known_classes(op, class_weight, outputs)
        with self._guarded(op, dataset, dataset.size):
            return logs_as(trainer.run_batch(dataset.tree, train=train), return_dict)

    def predict_on_batch(self, x):
        """Outputs for one batch."""
        batch = read_batch(self, x, op="predict_on_batch")
        trainer = self._predictor()
        self._prepare("predict", batch, batch_size=batch.size)
        with self._guarded("predict", batch, batch.size):
            return trainer.predict_batch((batch.tree[0], None, None))

    def reset_metrics(self) -> None:
        """Forgets what ``get_metrics_result`` returns.

        Each ``*_on_batch`` call returns its batch's values alone, also without this.
        """
        if (trainer := self._run.value.trainer) is not None:
            trainer.readings = None
        for metric in self.metrics:
            metric.reset_state()
