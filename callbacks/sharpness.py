"""The largest eigenvalue of the loss' Hessian, along training."""

from __future__ import annotations

from typing import Any

from exburn.callbacks.contract import Callback
from exburn.callbacks.contract.every import Every, check_every


class Sharpness(Callback):
    """Logs how sharply the loss bends, as ``sharpness``.

    It is the largest eigenvalue of the Hessian of the mean loss of some rows:
    ``model.curvature(x, y).top(1)``. Gradient descent with a rate ``r`` is stable in
    directions of less than ``2 / r``; with a large one, training stays about there.
    It takes some 20 to 60 products with the Hessian, each of which costs about as much
    as an epoch of training over these rows.

    Args:
        x, y: Rows to look at, as arrays: some hundreds will do.
        sample_weight: Their weights.
        batch_size: Rows of a batch; they bound the memory.
        every: In which epochs: 5, or an ``Every`` of epochs; in all by default.

    Raises:
        ArgumentError: As of ``model.curvature``, before the first epoch.
        CallbackError: ``every`` counts something else than epochs.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> x, y = np.array([[2.0, 0.0], [-2.0, 0.0]]), np.ones((2, 1))
        >>> watch = exburn.callbacks.Sharpness(x, y)
        >>> history = model.fit(x, y, epochs=2, verbose=0, callbacks=[watch])
        >>> [round(value, 4) for value in history.history["sharpness"]]
        [8.0, 8.0]

    Source: J. Cohen et al., "Gradient Descent on Neural Networks Typically Occurs at
    the Edge of Stability", 2021.
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        *,
        sample_weight: Any = None,
        batch_size: int | None = None,
        every: int | str | Every | None = None,
    ):
        self._data = {"x": x, "y": y, "sample_weight": sample_weight}
        self._data["batch_size"] = batch_size
        self.every = check_every("Sharpness", every, "epochs")

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self.model.curvature(**self._data)  # so that no epoch is lost to an error

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None:
            curvature = self.model.curvature(**self._data)
            logs["sharpness"] = float(curvature.top(1)[0])
