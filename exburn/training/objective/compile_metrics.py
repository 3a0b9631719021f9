"""The metrics of ``compile`` as one metric, which is what ``model.metrics`` lists."""

from __future__ import annotations

from typing import Any

from exburn.core import forward_context
from exburn.errors import NotBuiltError
from exburn.metrics import Metric


class CompileMetrics(Metric):
    """The metrics that ``compile`` was given, matched to outputs by the first batch.

    Steps of a user's own update it as Keras' of that name: it has no variables before
    it is built, ``update_state`` gives each metric its output, and ``result`` is a dict
    of values by their names in logs.

    Args:
        model: The model, whose objective has the metrics.
    """

    def __init__(self, model: Any):
        super().__init__(name="compile_metrics")
        self._model = model

    @property
    def built(self) -> bool:
        """Whether the metrics know which outputs are theirs."""
        return self._objective.is_built

    @property
    def metrics(self) -> list[Metric]:
        """The metrics themselves; none before they are built."""
        return list(self._children().values())

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Takes in a batch; weights are for ``weighted_metrics`` alone.

        Args:
            y_true, y_pred: Targets and outputs, in the model's structure.
            sample_weight: One weight a row, or one array for each output.
        """
        if not self.built:  # once, as in Keras: other batches have other sizes
            self._model.match_objective(y_true, y_pred, sample_weight)
        ctx = forward_context.current() or forward_context.Context()
        masks = ctx.attachments(y_pred)[1]
        self._objective.measure(y_true, y_pred, sample_weight, masks)

    def result(self) -> dict[str, Any]:
        """The values, by their names in logs.

        Raises:
            NotBuiltError: There was no batch yet.
        """
        if not self.built:
            raise NotBuiltError(
                "compile_metrics",
                "the metrics are not matched to outputs yet",
                hint="Call update_state(y, y_pred) first, or fit.",
            )
        values: dict[str, Any] = {}
        for name, metric in self._children().items():
            value = metric.result()
            values |= value if isinstance(value, dict) else {name: value}
        return values

    def _children(self) -> dict[str, Metric]:
        return {meter.name: meter.metric for meter in self._objective.meters}

    @property
    def _objective(self) -> Any:
        return self._model._training_session.objective
