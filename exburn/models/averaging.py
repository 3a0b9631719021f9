"""Averaged weights in a model, and the statistics that belong to its weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from exburn.models.arguments import BATCH, positive
from exburn.models.encoding import encode_dataset, read_dataset

__all__ = ["Averaging"]


class Averaging:
    """Weights other than those of the last step; mixed into ``Model``."""

    _run: Any
    _trainer: Any
    _prepare: Any

    @contextlib.contextmanager
    def averaged_weights(self) -> Iterator[None]:
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
        self._use_average(True)
        try:
            yield
        finally:
            self._use_average(False)

    def _use_average(self, wanted: bool) -> None:
        self._trainer("averaged weights").use_average(wanted)

    def update_batch_statistics(
        self, x: Any = None, batch_size: int | None = None, steps: int | None = None
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
        trainer = self._trainer(op)
        batch_size = positive(op, "batch_size", batch_size, None)
        steps = positive(op, "steps", steps, None)
        dataset = None
        if x is not None:
            rows = batch_size or BATCH
            dataset = read_dataset(self, x, op=op)
            dataset = encode_dataset(self, dataset, op=op, batch_size=rows)
            if trainer.state is None:
                self._prepare("predict", dataset)
        trainer.update_statistics(dataset, batch_size, steps)

    def _check_statistics(self, data: Any) -> None:
        """Raises if ``update_batch_statistics`` could not use the data."""
        dataset = None if data is None else read_dataset(self, data, op="fit")
        self._trainer("fit").check_statistics(dataset)
