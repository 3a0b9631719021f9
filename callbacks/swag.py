"""Collecting a normal distribution of weights along the last epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.callbacks.stochastic_weight_averaging import StochasticWeightAveraging
from exburn.core.checks import check_count
from exburn.errors import CallbackError


class SWAG(StochasticWeightAveraging):
    """Averages the weights of the last epochs, and keeps how far they wander.

    As `StochasticWeightAveraging`, which it is; beside the mean it keeps the weights'
    variances and their last deviations from the mean. These make a normal distribution
    of weights for ``model.uncertainty(x, y, method="swag", collected=swag)``.

    Args:
        start_epoch, every, learning_rate, data: As of `StochasticWeightAveraging`; a
            learning rate that stays high has the weights wander.
        rank: Number of deviations, of the last epochs that count.

    Attributes:
        averaged: Number of epochs in the mean.

    Raises:
        CallbackError, DataError: As `StochasticWeightAveraging`.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse", seed=0)
        >>> x, swag = np.eye(2, dtype="float32"), SWAG(start_epoch=1, rank=2)
        >>> history = model.fit(x, x[:, :1], epochs=4, verbose=0, callbacks=[swag])
        >>> swag.averaged, swag.deviations[0].shape
        (3, (2, 2, 1))

    Source: W. J. Maddox et al., "A Simple Baseline for Bayesian Uncertainty in Deep
    Learning", 2019.
    """

    def __init__(
        self,
        start_epoch: int,
        *,
        every: int = 1,
        learning_rate: float | None = None,
        data: Any = None,
        rank: int = 20,
    ):
        super().__init__(
            start_epoch, every=every, learning_rate=learning_rate, data=data
        )
        self.rank = check_count("SWAG", "rank", rank, 2, error=CallbackError)
        self._squares: list[Any] | None = None
        self._deviations: list[list[Any]] = []

    @property
    def mean(self) -> list[Any]:
        """The mean of each trained weight.

        Raises:
            CallbackError: Fewer than two epochs count so far.
        """
        self._require_two()
        assert self._mean is not None
        return self._mean

    @property
    def variance(self) -> list[Any]:
        """The variance of each entry of each trained weight, along the epochs."""
        self._require_two()
        assert self._squares is not None and self._mean is not None
        pairs = zip(self._squares, self._mean, strict=True)
        return [jnp.maximum(square - mean**2, 0) for square, mean in pairs]

    @property
    def deviations(self) -> list[Any]:
        """``[rank, …]`` of each trained weight: weights less the mean of the time."""
        self._require_two()
        return [jnp.stack(parts) for parts in zip(*self._deviations, strict=True)]

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if not self._restored:
            self._squares, self._deviations = None, []
        super().on_train_begin(logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        before = self.averaged
        super().on_epoch_end(epoch, logs)
        if self.averaged == before:
            return
        assert self._mean is not None
        weights = [w.get_value() for w in self.model.trainable_weights]
        squares = self._squares or [jnp.zeros_like(mean) for mean in self._mean]
        self._squares, away = _include(
            squares, self._mean, weights, np.float32(self.averaged)
        )
        self._deviations = [*self._deviations, away][-self.rank :]

    def _require_two(self) -> None:
        if self.averaged < 2:
            raise CallbackError(
                "SWAG",
                f"the weights of {self.averaged} epochs have no spread: two are needed",
                hint="Train longer, or begin at an earlier start_epoch.",
            )

    def state_dict(self) -> dict[str, Any]:
        own = {"squares": self._squares, "deviations": self._deviations}
        return super().state_dict() | jax.tree.map(np.asarray, own)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        own = {name: state[name] for name in ("squares", "deviations")}
        own = jax.tree.map(jnp.asarray, own)
        self._squares, self._deviations = own["squares"], own["deviations"]


@jax.jit
def _include(
    squares: list[Any], mean: list[Any], weights: list[Any], count: Any
) -> tuple[list[Any], list[Any]]:
    """The mean square after one more of ``count``, and the distance from the mean."""
    wide = [w.astype(m.dtype) for w, m in zip(weights, mean, strict=True)]
    new = [s + (w**2 - s) / count for s, w in zip(squares, wide, strict=True)]
    return new, [w - m for w, m in zip(wide, mean, strict=True)]
