"""One batch at a time: the loops that users write themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, overload

import jax
import numpy as np

from exburn.data import ArrayDataset, RaggedDataset
from exburn.models.arguments import logs_as
from exburn.models.encoding import read_batch
from exburn.models.inferring import require_predictor
from exburn.models.network import Network
from exburn.models.preparing import guard_run, prepare
from exburn.models.results import Outputs, Scores
from exburn.models.session import require_trainer
from exburn.models.weighting import check_known_classes, class_weights
from exburn.module.building import spec_like
from exburn.training.feed.plan import bucket
from exburn.training.ragged_outputs import cut_batch


@overload
def train_on_batch(
    self: Network,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    class_weight: Mapping[int, float] | None = None,
    *,
    return_dict: Literal[True],
) -> dict[str, Any]: ...
@overload
def train_on_batch(
    self: Network,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    class_weight: Mapping[int, float] | None = None,
    return_dict: Literal[False] = False,
) -> Scores: ...
@overload
def train_on_batch(
    self: Network,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    class_weight: Mapping[int, float] | None = None,
    *,
    return_dict: bool,
) -> Any: ...
def train_on_batch(
    self: Network,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    class_weight: Mapping[int, float] | None = None,
    return_dict: bool = False,
) -> Any:
    """One update on one batch; returns its loss and metrics.

    Args:
        x: Inputs of one batch.
        y: Its targets.
        sample_weight: A weight for each row, or for each entry of the targets.
        class_weight: A weight for each class of the targets.
        return_dict: Whether a dict by name is returned, instead of numbers in order.

    Raises:
        NotCompiledError: ``compile`` was not called.
        BusyError: The model is being trained.
        DataError, ShapeError, TargetError: The batch does not fit the model.
    """
    return _run_on_batch(
        self,
        "train_on_batch",
        x,
        y,
        sample_weight,
        class_weight,
        return_dict,
        train=True,
    )


@overload
def test_on_batch(
    self: Network,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    return_dict: Literal[True],
) -> dict[str, Any]: ...
@overload
def test_on_batch(
    self: Network,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    return_dict: Literal[False] = False,
) -> Scores: ...
@overload
def test_on_batch(
    self: Network,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    return_dict: bool,
) -> Any: ...
def test_on_batch(
    self: Network,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    return_dict: bool = False,
) -> Any:
    """The loss and metrics of one batch, without an update.

    Args:
        x: Inputs of one batch.
        y: Its targets.
        sample_weight: A weight for each row, or for each entry of the targets.
        return_dict: Whether a dict by name is returned, instead of numbers in order.

    Raises:
        NotCompiledError: ``compile`` was not called.
        BusyError: The model is being trained.
        DataError, ShapeError, TargetError: The batch does not fit the model.
    """
    return _run_on_batch(
        self, "test_on_batch", x, y, sample_weight, None, return_dict, train=False
    )


def _run_on_batch(
    model: Network, op, x, y, sample_weight, class_weight, return_dict, *, train
):
    trainer = require_trainer(model, op)
    trainer.holder.check_free(op, train=train)
    dataset = read_batch(model, x, y, sample_weight, op=op)
    if class_weight is not None:
        dataset = class_weights(dataset, class_weight, op)
        assert isinstance(dataset, ArrayDataset)
    outputs = prepare(model, op, dataset, train=train, batch_size=dataset.size)
    if class_weight is not None:
        check_known_classes(op, class_weight, outputs)
    with guard_run(model, op, dataset, dataset.size):
        batch = _fill(model, dataset)
        return logs_as(trainer.run_batch(batch, train=train), return_dict)


def predict_on_batch(self: Network, x: Any) -> Outputs:
    """Outputs for one batch.

    Args:
        x: Inputs of one batch.

    Raises:
        DataError, ShapeError: The batch does not fit the model.
    """
    batch = read_batch(self, x, op="predict_on_batch")
    trainer = require_predictor(self)
    prepare(self, "predict", batch, batch_size=batch.size)
    with guard_run(self, "predict", batch, batch.size):
        tree = _fill(self, batch)
        outputs = trainer.predict_batch((tree[0], None, None))
        if not isinstance(batch, RaggedDataset):
            return outputs
        split = trainer.holder.split
        survey = split.survey(split.peek(), tree[0], False)
        return cut_batch(outputs, survey, batch.axes)


def _fill(model: Network, batch: ArrayDataset) -> tuple:
    """The arrays of a batch, its ragged ones filled up to one of a few widths."""
    if not isinstance(batch, RaggedDataset):
        return batch.tree
    rows, preparer = np.arange(batch.size), model._training_session.preparer
    filled = batch.fill(rows, batch.fixed_or([bucket(n) for n in batch.widest])).tree
    try:
        preparer.forward(jax.tree.map(spec_like, filled[0]))
    except Exception:  # whatever a layer with so many positions and no more raises
        return batch.fill(rows, batch.widest).tree
    return filled


def reset_metrics(self: Network) -> None:
    """Forgets what ``get_metrics_result`` returns.

    Each ``*_on_batch`` call returns its batch's values alone, also without this.
    """
    if (trainer := self._training_session.trainer) is not None:
        trainer.preparer.readings = None
    for metric in self.metrics:
        metric.reset_state()
