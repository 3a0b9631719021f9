"""Averaged weights in a model, and the statistics that belong to its weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from exburn.data import StreamDataset
from exburn.errors import ArgumentError, DataError
from exburn.models.arguments import BATCH, positive
from exburn.models.encoding import encode_dataset, read_dataset
from exburn.models.network import Network
from exburn.models.preparing import prepare
from exburn.models.session import require_trainer
from exburn.training import averaging

if TYPE_CHECKING:
    from exburn.training.trainer import Trainer


@contextlib.contextmanager
def averaged_weights(self: Network) -> Iterator[None]:
    """Inside the block the weights are the optimizer's moving average.

    Needs an optimizer with ``use_ema=True``. ``fit`` leaves the average in the
    model when it ends; this is for evaluating or saving before that, in a callback
    or between calls of ``train_on_batch``.

    Raises:
        NotCompiledError: ``compile`` was not called.
        ArgumentError: There is no average.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> model.compile(exburn.optimizers.SGD(0.1, use_ema=True), "mse")
        >>> x, y = np.ones((4, 2)), np.ones((4, 1))
        >>> for _ in range(3):
        ...     _ = model.train_on_batch(x, y)
        >>> now = model.get_weights()[0]
        >>> with model.averaged_weights():
        ...     average = model.get_weights()[0]
        >>> after = model.get_weights()[0]
        >>> bool((average == now).any()), bool((after == now).all())
        (False, True)
    """
    use_average(self, True)
    try:
        yield
    finally:
        use_average(self, False)


def use_average(model: Network, average: bool) -> None:
    """Shows the optimizer's average in the model, or takes it back."""
    trainer = require_trainer(model, "averaged weights")
    averaging.use_average(trainer.holder, average)


def update_batch_statistics(
    self: Network,
    x: Any = None,
    batch_size: int | None = None,
    steps: int | None = None,
) -> None:
    """Sets BatchNormalization's moving statistics to the means over the data.

    For weights that were not trained with the statistics they have: averaged ones,
    or such as were set by hand. Frozen layers keep theirs.

    Args:
        x: Inputs, alone or in a loader of batches; in a callback of ``fit`` its
            data by default.
        batch_size: Rows of a batch; those of ``fit`` by default, else 32.
        steps: Batches, if not all.

    Raises:
        NotCompiledError: ``compile`` was not called.
        DataError: The data can be read only once.
        ArgumentError: No ``x``, and no fit is under way.

    Source: Izmailov et al., *Averaging Weights Leads to Wider Optima and Better
    Generalization*, 2018.
    """
    op = "update_batch_statistics"
    trainer = require_trainer(self, op)
    batch_size = positive(op, "batch_size", batch_size, None)
    steps = positive(op, "steps", steps, None)
    dataset = None
    if x is not None:
        rows = batch_size or BATCH
        dataset = read_dataset(self, x, op=op)
        dataset = encode_dataset(self, dataset, op=op, batch_size=rows)
        if trainer.holder.state is None:
            prepare(self, "predict", dataset)
    if averaging.find_statistics(trainer.holder.split):
        dataset, rows, count = _data_for_statistics(trainer, dataset)
        rows, steps = batch_size or rows or BATCH, steps or count
        averaging.update_statistics(trainer.preparer, dataset, rows, steps)


def check_statistics(model: Network, data: Any) -> None:
    """Raises if ``update_batch_statistics`` could not use the data."""
    dataset = None if data is None else read_dataset(model, data, op="fit")
    _data_for_statistics(require_trainer(model, "fit"), dataset)


def _data_for_statistics(trainer: Trainer, dataset: Any) -> tuple[Any, Any, Any]:
    """The data, or those of the ``fit`` under way; their batch size and steps."""
    fitted, rows, steps = trainer.fitted, None, None
    if dataset is None and fitted is not None:
        dataset, rows, steps = fitted.dataset, fitted.batch_size, fitted.steps
    if dataset is None:
        raise ArgumentError(
            "update_batch_statistics",
            "there are no data: no fit is under way",
            hint="Pass x.",
        )
    if isinstance(dataset, StreamDataset) and not dataset.reiterable:
        raise DataError(
            "update_batch_statistics",
            f"the {dataset.name} can be read only once",
            hint="Give other data for the statistics: x=…, or data=… of the callback.",
        )
    return dataset, rows, steps
