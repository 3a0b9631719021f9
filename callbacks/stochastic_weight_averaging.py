"""Averaging the weights of the last epochs."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.callbacks.contract import Callback
from exburn.compression.masking import apply_masks
from exburn.core.checks import check_count
from exburn.errors import CallbackError, warn


class StochasticWeightAveraging(Callback):
    """Ends the training with the mean of the weights of its last epochs.

    The mean takes in the trained weights at the end of epoch `start_epoch` and of every
    `every`-th one after it. When `fit` ends it is put in the model, and the moving
    statistics of BatchNormalization, which belong to other weights, are computed anew
    from the data.

    Args:
        start_epoch: First epoch that counts, from 0.
        every: Epochs from one that counts to the next.
        learning_rate: Constant rate from `start_epoch` on; the optimizer's by default.
        data: Inputs for the statistics; the data of `fit` by default.

    Attributes:
        averaged: Number of epochs in the mean.

    Raises:
        CallbackError: An argument is out of range; when `fit` begins: it ends before
            `start_epoch`, or a schedule sets the learning rate.
        DataError: When `fit` begins: its data can be read only once, and the model
            needs them again.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> averaging = StochasticWeightAveraging(start_epoch=2)
        >>> history = model.fit(np.ones((4, 2)), np.ones((4, 1)), epochs=5, verbose=0,
        ...                     callbacks=[averaging])
        >>> averaging.averaged
        3

    Source: P. Izmailov et al., "Averaging Weights Leads to Wider Optima and Better
    Generalization", 2018.
    """

    def __init__(
        self,
        start_epoch: int,
        *,
        every: int = 1,
        learning_rate: float | None = None,
        data: Any = None,
    ):
        check = functools.partial(check_count, type(self).__name__, error=CallbackError)
        self.start_epoch = check("start_epoch", start_epoch, 0)
        self.period = check("every", every)
        self.learning_rate, self.data = learning_rate, data
        self.averaged = 0
        self._mean: list[Any] | None = None
        self._restored = False

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if not self._restored:
            self.averaged, self._mean = 0, None
        self._restored = False
        if self.params.get("epochs", self.start_epoch + 1) <= self.start_epoch:
            raise CallbackError(
                "StochasticWeightAveraging",
                f"start_epoch must be below epochs={self.params['epochs']}, received "
                f"{self.start_epoch}",
                hint="Epochs count from 0: three quarters of the training is usual.",
            )
        if self.learning_rate is not None and self.model.optimizer.schedule is not None:
            raise CallbackError(
                "StochasticWeightAveraging",
                "learning_rate cannot be set: the optimizer's schedule computes it",
                {"schedule": self.model.optimizer.schedule},
                hint="Leave learning_rate out, or give the optimizer a number.",
            )
        self.model._check_statistics(self.data)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self.learning_rate is not None and epoch >= self.start_epoch:
            self.model.optimizer.learning_rate = self.learning_rate

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        late = epoch - self.start_epoch
        if late < 0 or late % self.period:
            return
        weights = [w.get_value() for w in self.model.trainable_weights]
        if self._mean is None:
            self._mean = [jnp.zeros(w.shape, _wide(w.dtype)) for w in weights]
        self._mean = _include(self._mean, weights, np.float32(self.averaged + 1))
        self.averaged += 1

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._mean is None:
            warn(
                "StochasticWeightAveraging: the training was stopped before epoch "
                f"{self.start_epoch}; the model keeps the weights of its last step",
            )
            return
        for weight, mean in zip(self.model.trainable_weights, self._mean, strict=True):
            weight.assign(jnp.copy(mean))
        apply_masks(self.model)  # weights of a mean were not all pruned yet
        self.model.update_batch_statistics(self.data)

    def state_dict(self) -> dict[str, Any]:
        mean = None if self._mean is None else [np.asarray(m) for m in self._mean]
        return {"averaged": self.averaged, "mean": mean}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.averaged = state["averaged"]
        mean = state["mean"]
        self._mean = None if mean is None else [jnp.asarray(m) for m in mean]
        self._restored = True


@jax.jit
def _include(mean: list[Any], weights: list[Any], count: Any) -> list[Any]:
    """The mean after one more of ``count`` members."""
    return [
        m + (w.astype(m.dtype) - m) / count for m, w in zip(mean, weights, strict=True)
    ]


def _wide(dtype: Any) -> Any:
    return jnp.promote_types(dtype, jnp.float32)
